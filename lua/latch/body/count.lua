-- What the key of a latch holds.

-- What a hash is that is no latch of this profile, as the headers of the scripts that include this
-- number it.
local function other_hash(key)
  local kind = redis.call("HGET", key, "kind")
  if kind == "latch" then return 7 end
  if kind == "semaphore" then return 4 end
  if redis.call("HEXISTS", key, "mode") == 1 then return 3 end
  if redis.call("HLEN", key) ~= 1 then return 2 end
  -- A lock has one field, "<client uuid>:<hold id>".
  if string.match(redis.call("HKEYS", key)[1], "^%x+%-[%x-]+:%d") then return 6 end
  return 2
end

-- The count of a latch; nil if there is none. Then what makes the key no latch, as the headers of the
-- scripts that include this number it; nil if nothing does.
local function count_of(latch, format)
  local found = redis.call("TYPE", latch).ok
  if found == "none" then return nil, nil end
  if found == "hash" and format == "string" then return nil, other_hash(latch) end
  if found ~= format then return nil, 1 end
  local text = nil
  if format == "string" then
    text = redis.call("GET", latch)
  else
    local fields = redis.call("HMGET", latch, "kind", "count")
    if fields[1] ~= "latch" then return nil, other_hash(latch) end
    text = fields[2]
  end
  local count = tonumber(text)
  if not count or count % 1 ~= 0 then return nil, 5 end
  return count, nil
end
