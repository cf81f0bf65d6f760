-- How permits come back, once permits.lua and free.lua are there.
--
-- Uses permit_of, read_free

-- Takes all permits of a hold away, and counts them as free, if the number was set. Returns how many
-- there were, or the answer of the script if there can be none or Redis refuses; and how many are
-- free then, as it is announced.
local function give_back(lock, permits, field, want, now)
  local free, _, refused = read_free(lock)
  if refused then return refused end
  local there = 0
  for i = 1, want do
    local ends = redis.pcall("ZSCORE", permits, permit_of(field, i))
    if type(ends) == "table" then
      local kind = redis.call("TYPE", permits).ok
      if kind == "zset" or kind == "none" then return ends end
      return {-3, now}
    end
    if ends then there = there + 1 end
  end
  if there == 0 then return 0 end
  -- The first write, and not INCRBY: Redis refuses that one as the first when memory is short.
  redis.call("PERSIST", permits)
  if free then free = redis.call("INCRBY", lock, there) end
  for i = 1, want do
    local removed = redis.pcall("ZREM", permits, permit_of(field, i))
    if type(removed) == "table" then
      if free then redis.call("INCRBY", lock, -there) end
      return removed
    end
  end
  return there, math.max(free or 1, 1)
end
