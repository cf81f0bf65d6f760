-- What the key of a latch holds.

-- The count of a latch; nil if there is none. Then what makes the key no latch, as the headers of the
-- scripts that include this number it; nil if nothing does.
local function count_of(latch, format)
  local found = redis.call("TYPE", latch).ok
  if found == "none" then return nil, nil end
  if found ~= format then return nil, 1 end
  local text = nil
  if format == "string" then
    text = redis.call("GET", latch)
  else
    local fields = redis.call("HMGET", latch, "kind", "count", "mode")
    if fields[1] ~= "latch" then
      if fields[1] == "semaphore" then return nil, 4 end
      if fields[3] then return nil, 3 end
      return nil, 2
    end
    text = fields[2]
  end
  local count = tonumber(text)
  if not count or count % 1 ~= 0 then return nil, 5 end
  return count, nil
end
