--[[
  Gives up many holds or reservations at once, whatever their counts, and passes their locks on.

  KEYS[i]        lock     hash: hold field -> hold count; a count of 0 is a reservation
  KEYS[holds+i]  line     of KEYS[i], sorted set: hold field -> ticket; all may be left out
  ARGV[1]        verb     PUBLISH or SPUBLISH
  ARGV[2i]       field    "<client uuid>:<hold id>" of KEYS[i]
  ARGV[2i+1]     channel  where the freed KEYS[i] is announced

  Returns {code, time in us, ...}
    {1, time, r1, r2, ...}  for each hold: receivers when it was freed and published, -1 freed but
                            publishing was refused, -5 nothing done: the key is not this hold's, its
                            hash has other fields, or Redis refused to touch it
    {-9, time, n}           ARGV[n] not allowed
]]
-- include reentrant/body/reserve.lua
-- include reentrant/body/pass_on.lua

local verb = ARGV[1]

local clock = redis.call("TIME")
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
if verb ~= "PUBLISH" and verb ~= "SPUBLISH" then return {-9, now, 1} end
local holds = (#ARGV - 1) / 2
if #KEYS == 0 or holds % 1 ~= 0 or (#KEYS ~= holds and #KEYS ~= 2 * holds) then
  return {-9, now, #ARGV}
end
for i = 1, holds do
  if #ARGV[2 * i] == 0 then return {-9, now, 2 * i} end
  if #ARGV[2 * i + 1] == 0 then return {-9, now, 2 * i + 1} end
end

-- No error ends the script: other holds may have been given up before.
local function release(lock, line, field, channel)
  if redis.pcall("HLEN", lock) ~= 1 then return -5 end
  if redis.pcall("HDEL", lock, field) ~= 1 then return -5 end
  return pass_on(lock, line, channel, verb)
end

local answer = {1, now}
for i = 1, holds do
  answer[i + 2] = release(KEYS[i], KEYS[holds + i], ARGV[2 * i], ARGV[2 * i + 1])
end
return answer
