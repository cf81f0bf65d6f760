--[[
  Gives up a place, or sets its hold count.

  KEYS[1]  lock     hash: hold field -> hold count, "<hold field>:ends" -> server time in ms
  ARGV[1]  field    "<client uuid>:<hold id>"
  ARGV[2]  count    0 gives the place up; 1 and more set the count
  ARGV[3]  channel  where a free place is announced
  ARGV[4]  verb     PUBLISH or SPUBLISH

  Returns {code, time in us, ...}
    {1, time, receivers}  given up and published; -1 if Redis refused to publish
    {2, time}             count set
    {0, time}             there is no such place
]]
local lock, field, count = KEYS[1], ARGV[1], tonumber(ARGV[2])
local clock = redis.call("TIME")
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
if redis.call("HEXISTS", lock, field) == 0 then return {0, now} end
if count > 0 then
  redis.call("HSET", lock, field, count)
  return {2, now}
end
redis.call("HDEL", lock, field, field .. ":ends")
local receivers = redis.pcall(ARGV[4], ARGV[3], "0")
if type(receivers) ~= "number" then receivers = -1 end
return {1, now, receivers}
