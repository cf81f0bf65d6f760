-- What a key is that is no semaphore of Redisson.
--
-- Uses other_hash

-- The number of the conflict.
local function other_data(lock)
  if redis.call("TYPE", lock).ok ~= "hash" then return 13 end
  local kind = redis.call("HGET", lock, "kind")
  if kind == "semaphore" then return 14 end
  return other_hash(lock, kind)
end
