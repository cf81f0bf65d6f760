--[[
  Gives up a hold now, and frees the lock at a given time. Until then a field stands in the place of
  the hold that is nobody's: "<field>:kept". Removes nothing but the field of the hold.

  KEYS[1]  lock      hash: hold field -> hold count; a count of 0 is a reservation
  KEYS[2]  line      sorted set: hold field -> ticket; may be left out
  ARGV[1]  field     "<client uuid>:<hold id>"
  ARGV[2]  free_at   server time in us before which nobody else may have the lock
  ARGV[3]  most_ms   time to live that is left at most, should the server's clock have been set
  ARGV[4]  channel   where it is announced, so that waiters hear of the new time to live
  ARGV[5]  verb      PUBLISH or SPUBLISH

  Returns {code, time in us, ...}
    {2, time, receivers}  given up and published; the lock is taken until free_at; receivers -1 when
                          publishing was refused, 0 when all this had been done before
    {1, time, receivers}  freed and passed on: the time was over
    {3, time, receivers}  freed and published, but the hash has other fields: they stay, without a
                          time to live
    {4, time, receivers}  the same, but they keep the time to live: they are a read-write lock, or
                          Redis refused HEXISTS or PERSIST
    {0, time}             the key is gone
    {-3, time}            another hold has the key, or it is reserved
    {-9, time, n}         ARGV[n] not allowed
]]
-- include reentrant/body/reserve.lua
-- include reentrant/body/pass_on.lua

local lock, line = KEYS[1], KEYS[2]
local field, channel, verb = ARGV[1], ARGV[4], ARGV[5]
local free_at, most = tonumber(ARGV[2]), tonumber(ARGV[3])

local clock = redis.call("TIME")
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
if not field or #field == 0 then return {-9, now, 1} end
if not free_at or free_at < 0 or free_at > 9007199254740991 or free_at % 1 ~= 0 then
  return {-9, now, 2}
end
if not most or most < 1 or most > 86400000 or most % 1 ~= 0 then return {-9, now, 3} end
if not channel or #channel == 0 then return {-9, now, 4} end
if verb ~= "PUBLISH" and verb ~= "SPUBLISH" then return {-9, now, 5} end

local fields = redis.pcall("HLEN", lock)
if type(fields) == "table" then
  local kind = redis.call("TYPE", lock).ok
  if kind == "hash" or kind == "none" then
    return {err = string.format("%s (HLEN)", fields.err)}
  end
  return {-3, now}
end
if fields == 0 then return {0, now} end

local kept = string.format("%s:kept", field)
local mine = redis.call("HGET", lock, field)
if not mine or mine == "0" then
  if redis.call("HGET", lock, kept) then return {2, now, 0} end
  return {-3, now}
end

local rest = math.floor((free_at - now + 999) / 1000)
if rest > most then rest = most end
local keeps = rest > 0 and fields == 1
if keeps then
  -- There is no such field, so this changes nothing. It shows that HDEL is not refused below, where
  -- two fields would be left. It also is the first write, and not HSET: Redis refuses that one as
  -- the first when memory is short.
  redis.call("HDEL", lock, kept)
  -- From here on the key lives for the rest, whatever is refused.
  redis.call("PEXPIRE", lock, rest)
  redis.call("HSET", lock, kept, "0")
end

redis.call("HDEL", lock, field)
-- The rest of the line hears of the new time to live as well.
local receivers = pass_on(lock, fields == 1 and not keeps and line, channel, verb)
if keeps then return {2, now, receivers} end
if fields > 1 then
  -- The rest is data of another program, which must not end with our lease. A read-write lock has a
  -- time to live of its own.
  if redis.pcall("HEXISTS", lock, "mode") ~= 0 or type(redis.pcall("PERSIST", lock)) == "table" then
    return {4, now, receivers}
  end
  return {3, now, receivers}
end
return {1, now, receivers}
