-- How a hold gets permits, once permits.lua is there.
--
-- Uses permit_of

-- Gives a hold all its permits, for so many ms from now on: fresh ones, or the end of those that it
-- has is moved. Returns the error if Redis refuses that.
local function take(permits, field, want, ms, now_ms)
  local left, kept = redis.call("PTTL", permits), nil
  -- The first write, and not ZADD: Redis refuses that one as the first when memory is short. If the
  -- key is absent, it changes nothing, and shows that PEXPIRE is not refused below.
  if left == -1 then
    kept = redis.pcall("PERSIST", permits)
  elseif left < ms then
    kept = redis.pcall("PEXPIRE", permits, ms)
  else
    kept = redis.pcall("PEXPIRE", permits, left)
  end
  if type(kept) == "table" then return kept end
  for i = 1, want do
    local added = redis.pcall("ZADD", permits, now_ms + ms, permit_of(field, i))
    if type(added) == "table" then return added end
  end
  if left == -2 then redis.call("PEXPIRE", permits, ms) end
end
