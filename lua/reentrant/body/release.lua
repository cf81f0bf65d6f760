-- Gives up one hold, or sets its hold count, once release.lua has read the arguments.
-- Included by release.lua, whose header explains arguments and replies, and by
-- several/reentrant.lua.
--
-- Uses lock, line, field, count, channel, verb, now

if not field or #field == 0 then return {-9, now, 1} end
if not count or count < 0 or count > 65535 or count % 1 ~= 0 then return {-9, now, 2} end
if not channel or #channel == 0 then return {-9, now, 3} end
if verb ~= "PUBLISH" and verb ~= "SPUBLISH" then return {-9, now, 4} end

local fields = redis.pcall("HLEN", lock)
if type(fields) == "table" then
  local kind = redis.call("TYPE", lock).ok
  if kind == "hash" or kind == "none" then
    return {err = string.format("%s (HLEN)", fields.err)}
  end
end

if count > 0 then
  if fields == 0 then return {0, now} end
  local mine = type(fields) == "number" and redis.call("HGET", lock, field)
  if not mine or mine == "0" then return {-3, now} end
  redis.call("HSET", lock, field, count)
  return {2, now}
end

-- With its last field the key is gone.
local is_own = type(fields) == "number" and fields > 0 and redis.call("HDEL", lock, field) == 1
if line and not is_own then
  -- Leaves the line.
  local left = redis.pcall("ZREM", line, field)
  if type(left) == "table" and redis.call("TYPE", line).ok == "zset" then
    return {err = string.format("%s (ZREM)", left.err)}
  end
end
if not is_own and fields ~= 0 then return {-3, now} end

-- A free lock goes to the first in line, whoever asks. Most locks have no line.
local receivers = nil
if line and fields <= 1 and redis.pcall("EXISTS", line) ~= 0 then
  -- include reentrant/body/reserve.lua
  local first = redis.pcall("ZRANGE", line, 0, 0)[1]
  receivers = first and reserve(lock, line, first, channel, verb)
end
if not is_own then return {0, now} end
if not receivers then receivers = redis.pcall(verb, channel, "0") end
if type(receivers) == "table" then receivers = -1 end
if fields == 1 then return {1, now, receivers} end
-- The rest is data of another program, which must not end with our lease. A read-write lock has a
-- time to live of its own.
if redis.pcall("HEXISTS", lock, "mode") ~= 0 or type(redis.pcall("PERSIST", lock)) == "table" then
  return {4, now, receivers}
end
return {3, now, receivers}
