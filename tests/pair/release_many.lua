--[[
  Gives up many places at once, whatever their counts.

  KEYS[i]      lock     hash: hold field -> hold count, "<hold field>:ends" -> server time in ms
  ARGV[1]      verb     PUBLISH or SPUBLISH
  ARGV[2i]     field    "<client uuid>:<hold id>" of KEYS[i]
  ARGV[2i+1]   channel  where a free place of KEYS[i] is announced

  Returns {1, time in us, r1, r2, ...}: for each key the receivers; -1 given up but publishing was refused; -5 nothing
  done: there is no such place, or Redis refused to touch it
]]
local clock = redis.call("TIME")
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])

-- No error ends the script: other places may have been given up before.
local function release(lock, field, channel)
  if redis.pcall("HDEL", lock, field, field .. ":ends") ~= 2 then return -5 end
  local receivers = redis.pcall(ARGV[1], channel, "0")
  if type(receivers) == "table" then return -1 end
  return receivers
end

local answer = {1, now}
for i = 1, #KEYS do
  answer[i + 2] = release(KEYS[i], ARGV[2 * i], ARGV[2 * i + 1])
end
return answer
