-- How the ends of permits are moved, once permits.lua and slack.lua are there.
--
-- Uses permit_of, SLACK_MS

-- The permits of a hold that are there end in so many ms. Returns the error if Redis refuses that.
local function move_ends(permits, field, want, ms, now_ms)
  -- The first write, and not ZADD: Redis refuses that one as the first when memory is short. And the
  -- permits must not run out together, uncounted.
  local kept = redis.pcall("PERSIST", permits)
  if type(kept) == "table" then return kept end
  for i = 1, want do
    local ends = now_ms + ms + SLACK_MS
    local moved = redis.pcall("ZADD", permits, "XX", ends, permit_of(field, i))
    if type(moved) == "table" then return moved end
  end
end
