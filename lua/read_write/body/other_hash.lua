-- What a hash is that is no read-write lock.

-- The number of the conflict.
local function other_hash(lock)
  local kind = redis.call("HGET", lock, "kind")
  if kind == "latch" then return 10 end
  if kind == "semaphore" then return 11 end
  if redis.call("HLEN", lock) ~= 1 then return 7 end
  -- A lock has one field, "<client uuid>:<hold id>".
  if string.match(redis.call("HKEYS", lock)[1], "^%x+%-[%x-]+:%d") then return 12 end
  return 7
end
