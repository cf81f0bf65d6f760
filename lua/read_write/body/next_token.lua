-- The next fencing token of a slot.

-- It is larger than the last one, and at least the time. Without one: the reply instead. Only reads.
local function next_token(fence, now)
  local last = redis.pcall("GET", fence)
  if not last then return now end
  if type(last) == "table" then
    local kind = redis.call("TYPE", fence).ok
    if kind == "string" or kind == "none" then
      return nil, {err = string.format("%s (GET)", last.err)}
    end
  end
  last = tonumber(last)
  if not last or last < 0 or last > 9007199254740990 or last % 1 ~= 0 then
    return nil, {-4, now, 5}
  end
  if last >= now then return last + 1 end
  return now
end
