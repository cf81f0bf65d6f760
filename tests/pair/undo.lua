--[[
  Removes whatever a dead hold id may have left. May be repeated at will.

  KEYS[1]  lock     hash: hold field -> hold count, "<hold field>:ends" -> server time in ms
  ARGV[1]  field    "<client uuid>:<hold id>"
  ARGV[2]  count    0
  ARGV[3]  channel  where a free place is announced
  ARGV[4]  verb     PUBLISH or SPUBLISH

  Returns {code, time in us, ...}
    {1, time, receivers}  something was removed, and published; -1 if Redis refused to publish
    {0, time}             there was nothing
]]
local lock, field = KEYS[1], ARGV[1]
local clock = redis.call("TIME")
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
if redis.call("HDEL", lock, field, field .. ":ends") == 0 then return {0, now} end
local receivers = redis.pcall(ARGV[4], ARGV[3], "0")
if type(receivers) ~= "number" then receivers = -1 end
return {1, now, receivers}
