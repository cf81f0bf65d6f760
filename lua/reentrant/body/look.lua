-- What an attempt finds under the key of the lock; takes care of a want of 2 and more.
--
-- Leaves pttl, mine (the own hold count, or false), reserved (whether that is a reservation),
-- holder and left (who else has the lock, and for how long)
--
-- Uses count, field, lease, lock, not_after, now

if now > not_after then return {-1, now} end

local pttl = redis.call("PTTL", lock)
if pttl == -2 and count > 1 then return {-2, now} end

local mine = false
if pttl ~= -2 then
  mine = redis.pcall("HGET", lock, field)
  if type(mine) == "table" then
    if mine.err and redis.call("TYPE", lock).ok == "hash" then
      return {err = string.format("%s (HGET)", mine.err)}
    end
    return {-4, now, 1}
  end
end

-- A reservation is no hold, so that its key is like one of another.
local reserved = mine == "0"
local holder, left
if pttl ~= -2 and (not mine or reserved) then
  if redis.call("HEXISTS", lock, "mode") == 1 then return {-4, now, 4} end
  local is_alone = redis.call("HLEN", lock) == 1
  if is_alone and not reserved then
    holder, left = redis.call("HKEYS", lock)[1], pttl
  end
  if not is_alone or holder == "kind" then
    local kind = redis.call("HGET", lock, "kind")
    if kind == "latch" then return {-4, now, 10} end
    if kind == "semaphore" then return {-4, now, 11} end
    if not is_alone then return {-4, now, 2} end
  end
  if count > 1 then return {-3, now} end
end

if count > 1 then
  redis.call("HSET", lock, field, count)
  if pttl < lease then redis.call("PEXPIRE", lock, lease) end
  return {1, now, 0}
end
