-- A hold gives up all that it has of a read-write lock. Afterwards `held` is what is left of the
-- lock.
-- Included by release.lua, release_at.lua and force_release.lua, once look.lua is there.
--
-- Uses lock, timeout, field, wfield, held, mine_r, mine_w

local fields = redis.call("HLEN", lock)
if mine_w and fields > (mine_r and 3 or 2) then
  -- Reads of the same owner stay, of the hold that this one was an upgrade of. There is no such
  -- field, so this changes nothing; Redis refuses HSET as the first write when memory is short.
  redis.call("HDEL", lock, "")
  redis.call("HSET", lock, "mode", "read")
  held = "read"
end
fields = fields - redis.call("HDEL", lock, field, wfield)
if timeout then redis.pcall("DEL", timeout) end
if fields == 1 then
  redis.call("HDEL", lock, "mode")
  held = false
end
