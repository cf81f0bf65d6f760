-- Who is in the hash of a read-write lock.

-- Up to 16 of those who have the lock, or for whom it is reserved.
local function holds_of(lock)
  local fields
  if redis.call("HLEN", lock) <= 17 then
    fields = redis.call("HKEYS", lock)
  else
    fields = redis.call("HRANDFIELD", lock, 17)
  end
  local holds, count = {}, 0
  for i = 1, #fields do
    if fields[i] ~= "mode" and count < 16 then
      count = count + 1
      holds[count] = fields[i]
    end
  end
  return holds
end
