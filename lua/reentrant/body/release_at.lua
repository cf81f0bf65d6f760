-- Gives up a hold now, and frees the lock at a given time, once release_at.lua knows the keys. Its
-- header explains arguments and replies.
--
-- Uses lock, line, pass_on

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
local receivers = pass_on(lock, fields == 1 and not keeps and line, channel, verb, field)
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
