-- What a hash is that is no semaphore.

-- The number of the conflict, from what the hash has in its field `kind`.
local function other_hash(lock, kind)
  if kind == "latch" then return 10 end
  if redis.call("HEXISTS", lock, "mode") == 1 then return 4 end
  if redis.call("HLEN", lock) ~= 1 then return 8 end
  -- A lock has one field, "<client uuid>:<hold id>".
  if string.match(redis.call("HKEYS", lock)[1], "^%x+%-[%x-]+:%d") then return 12 end
  return 8
end
