-- Takes the field of a hold or a reservation out of the lock, or leaves the line; or sets the hold
-- count.
--
-- Leaves fields (how many there were) and is_own
--
-- Uses count, field, line, lock, now

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
