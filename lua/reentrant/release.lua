--[[
  Gives up a hold, or sets its hold count to a smaller number.

  KEYS[1]  lock     hash: hold field -> hold count
  ARGV[1]  field    "<client uuid>:<hold id>"
  ARGV[2]  count    0 frees the lock, whatever its count; 1 and more sets the count
  ARGV[3]  channel  where a freed lock is announced
  ARGV[4]  verb     PUBLISH or SPUBLISH

  Returns {code, time in us, ...}
    {1, time, receivers}  freed and published; receivers -1 when publishing was refused
    {2, time}             count set, time to live untouched
    {0, time}             the key is gone
    {-3, time}            another hold has the key
    {-9, time, n}         ARGV[n] not allowed
]]
local lock = KEYS[1]
local field, count, channel, verb = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local clock = redis.call("TIME")
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
-- From here on several do the same.
count = tonumber(count)
if not field or #field == 0 then return {-9, now, 1} end
if not count or count < 0 or count > 65535 or count % 1 ~= 0 then return {-9, now, 2} end
if not channel or #channel == 0 then return {-9, now, 3} end
if verb ~= "PUBLISH" and verb ~= "SPUBLISH" then return {-9, now, 4} end

local mine = redis.pcall("HGET", lock, field)
if type(mine) == "table" then
  if mine.err and redis.call("TYPE", lock).ok == "hash" then return {err = string.format("%s (HGET)", mine.err)} end
  return {-3, now}
end
if not mine then
  if redis.call("EXISTS", lock) == 0 then return {0, now} end
  return {-3, now}
end

if count > 0 then
  redis.call("HSET", lock, field, count)
  return {2, now}
end

redis.call("DEL", lock)
local receivers = redis.pcall(verb, channel, "0")
if type(receivers) == "table" then receivers = -1 end
return {1, now, receivers}
