-- How a hold gives its permits up, once permits.lua is there.
--
-- Uses permit_of

-- Takes all permits of a hold away. Returns how many there were, or the error of Redis.
local function give_up(permits, field, want)
  local there = 0
  for i = 1, want do
    local removed = redis.pcall("ZREM", permits, permit_of(field, i))
    if type(removed) == "table" then return removed end
    there = there + removed
  end
  return there
end
