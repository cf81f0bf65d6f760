--[[
  Gives up a hold, or sets its hold count to a smaller number. Removes
  nothing but the field of the hold.

  KEYS[1]  lock     hash: hold field -> hold count
  ARGV[1]  field    "<client uuid>:<hold id>"
  ARGV[2]  count    0 frees the lock, whatever its count; 1 and more sets the count
  ARGV[3]  channel  where a freed lock is announced
  ARGV[4]  verb     PUBLISH or SPUBLISH

  Returns {code, time in us, ...}
    {1, time, receivers}  freed and published; receivers -1 when publishing was refused
    {2, time}             count set, time to live untouched
    {3, time, receivers}  freed and published, but the hash has other fields: they stay, without a
                          time to live
    {4, time, receivers}  the same, but they keep the time to live: they are a read-write lock, or
                          Redis refused HEXISTS or PERSIST
    {0, time}             the key is gone
    {-3, time}            another hold has the key
    {-9, time, n}         ARGV[n] not allowed
]]
local lock = KEYS[1]
local field, count, channel, verb = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]

local clock = redis.call("TIME")
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
-- From here on several do the same.
if not field or #field == 0 then return {-9, now, 1} end
if not count or count < 0 or count > 65535 or count % 1 ~= 0 then return {-9, now, 2} end
if not channel or #channel == 0 then return {-9, now, 3} end
if verb ~= "PUBLISH" and verb ~= "SPUBLISH" then return {-9, now, 4} end

local fields = redis.pcall("HLEN", lock)
if type(fields) == "table" then
  local kind = redis.call("TYPE", lock).ok
  if kind == "hash" or kind == "none" then return {err = string.format("%s (HLEN)", fields.err)} end
  return {-3, now}
end
if fields == 0 then return {0, now} end

if count > 0 then
  if not redis.call("HGET", lock, field) then return {-3, now} end
  redis.call("HSET", lock, field, count)
  return {2, now}
end

-- With its last field the key is gone.
if redis.call("HDEL", lock, field) == 0 then return {-3, now} end
local receivers = redis.pcall(verb, channel, "0")
if type(receivers) == "table" then receivers = -1 end
if fields > 1 then
  -- The rest is data of another program, which must not end with our lease. A read-write lock has a
  -- time to live of its own.
  if redis.pcall("HEXISTS", lock, "mode") ~= 0 or type(redis.pcall("PERSIST", lock)) == "table" then
    return {4, now, receivers}
  end
  return {3, now, receivers}
end
return {1, now, receivers}
