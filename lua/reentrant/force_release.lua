--[[
  Takes the lock away from one particular hold or reservation, tells its client, and passes the lock
  on. Of the lock it removes nothing but the field of the hold.

  KEYS[1]  lock            hash: hold field -> hold count; a count of 0 is a reservation
  KEYS[2]  line            sorted set: hold field -> ticket; may be left out
  ARGV[1]  expected        field that must have the key, so that a late call cannot hit a stranger
  ARGV[2]  not_after       server time in us after which nothing is done
  ARGV[3]  channel         where a freed lock is announced
  ARGV[4]  verb            PUBLISH or SPUBLISH
  ARGV[5]  client_channel  where the holder's client hears the name

  Returns {code, time in us, ...}
    {1, time, receivers}  freed and published; receivers -1 when publishing was refused
    {3, time, receivers}  freed and published, but the hash has other fields: they stay, without a
                          time to live
    {4, time, receivers}  the same, but they keep the time to live: Redis refused PERSIST
    {0, time}             the key is gone
    {-1, time}            late: nothing done
    {-3, time}            another hold or value has the key, or it is a read-write lock
    {-9, time, n}         ARGV[n] not allowed
]]
-- include reentrant/body/reserve.lua
-- include reentrant/body/pass_on.lua

local lock, line = KEYS[1], KEYS[2]
local expected, channel, verb, client_channel = ARGV[1], ARGV[3], ARGV[4], ARGV[5]

local clock = redis.call("TIME")
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
local not_after = tonumber(ARGV[2])
if not expected or #expected == 0 then return {-9, now, 1} end
if not not_after or not_after < 0 or not_after > 9007199254740991 or not_after % 1 ~= 0 then
  return {-9, now, 2}
end
if not channel or #channel == 0 then return {-9, now, 3} end
if verb ~= "PUBLISH" and verb ~= "SPUBLISH" then return {-9, now, 4} end
if not client_channel or #client_channel == 0 then return {-9, now, 5} end
if now > not_after then return {-1, now} end

local fields = redis.pcall("HLEN", lock)
if type(fields) == "table" then
  local kind = redis.call("TYPE", lock).ok
  if kind == "hash" or kind == "none" then
    return {err = string.format("%s (HLEN)", fields.err)}
  end
  return {-3, now}
end
if fields == 0 then return {0, now} end
if redis.call("HEXISTS", lock, "mode") == 1 then return {-3, now} end

if redis.call("HDEL", lock, expected) == 0 then return {-3, now} end
-- With more fields the lock is not free.
local receivers = pass_on(lock, fields == 1 and line, channel, verb)
if type(redis.pcall("PUBLISH", client_channel, lock)) == "table" then receivers = -1 end
if fields > 1 then
  -- The rest is data of another program, which must not end with the lease.
  if type(redis.pcall("PERSIST", lock)) == "table" then return {4, now, receivers} end
  return {3, now, receivers}
end
return {1, now, receivers}
