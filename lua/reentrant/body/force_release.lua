-- Takes the lock away from one hold, once force_release.lua knows the keys. Its header explains
-- arguments and replies.
--
-- Uses lock, line, pass_on

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
local receivers = pass_on(lock, fields == 1 and line, channel, verb, expected)
if type(redis.pcall("PUBLISH", client_channel, lock)) == "table" then receivers = -1 end
if fields > 1 then
  -- The rest is data of another program, which must not end with the lease.
  if type(redis.pcall("PERSIST", lock)) == "table" then return {4, now, receivers} end
  return {3, now, receivers}
end
return {1, now, receivers}
