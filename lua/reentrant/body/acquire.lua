-- Takes one lock, or sets its hold count, once acquire.lua has read the arguments.
-- Included by acquire.lua, whose header explains arguments and replies, and by
-- several/reentrant.lua.
--
-- Uses lock, fence, line, field, count, lease, lease_text, not_after, mode, ticket, hears, channel,
-- verb, now, now_text

if not field or #field == 0 then return {-9, now, 1} end
if not count or count < 1 or count > 65535 or count % 1 ~= 0 then return {-9, now, 2} end
if not lease or lease < 1 or lease > 86400000 or lease % 1 ~= 0 then return {-9, now, 3} end
if not not_after or not_after < 0 or not_after > 9007199254740991 or not_after % 1 ~= 0 then
  return {-9, now, 4}
end
if mode ~= "first" and mode ~= "try" and mode ~= "again" then return {-9, now, 5} end
if not ticket or ticket < 0 or ticket > 9007199254740991 or ticket % 1 ~= 0 then
  return {-9, now, 6}
end
if hears ~= "1" and hears ~= "0" then return {-9, now, 7} end
if line and mode == "again" then
  if not channel or #channel == 0 then return {-9, now, 8} end
  if verb ~= "PUBLISH" and verb ~= "SPUBLISH" then return {-9, now, 9} end
end
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

local passes_on = mode == "again" and pttl == -2
if holder or passes_on then
  if mode == "again" and not line then return {-5, now} end
  if mode == "try" or not line then return {0, now, left, holder} end
  local kind = redis.call("TYPE", line).ok
  if kind ~= "zset" and kind ~= "none" then return {-4, now, 6} end

  -- Included here, because Lua takes time to make functions, and most locks are free.
  -- include reentrant/body/reserve.lua
  -- include reentrant/body/wait.lua
  local first, rank, has_place
  if passes_on then
    first = redis.call("ZRANGE", line, 0, 0, "WITHSCORES")
    if not first[1] or first[1] == field then first = nil end
  end
  if holder or first then
    ticket, rank, has_place = place_in(line, field, ticket, now, first)
  end
  -- Who names a ticket that is not behind the first in line is the first itself. If Redis refuses
  -- the reservation, the lock is free, and nobody else asks for it.
  if first and (has_place or ticket > tonumber(first[2]))
    and reserve(lock, line, first[1], channel, verb)
  then
    holder, left = first[1], RESERVATION_MS
  end
  if holder then
    wait_in(line, field, ticket, has_place, hears == "1")
    return {0, now, left, holder, ticket, rank}
  end
end

local last = redis.pcall("GET", fence)
if type(last) == "table" then
  local kind = redis.call("TYPE", fence).ok
  if last.err and (kind == "string" or kind == "none") then
    return {err = string.format("%s (GET)", last.err)}
  end
  return {-4, now, 5}
end
local token = now
if last then
  last = tonumber(last)
  if not last or last < 0 or last > 9007199254740990 or last % 1 ~= 0 then return {-4, now, 5} end
  if last >= token then token = last + 1 end
end

-- The fence first: when memory is short it is the write that Redis refuses, before anything
-- changed.
redis.call("SET", fence, token == now and now_text or token)
if not mine then
  -- The key is absent, so this changes nothing. It shows that PEXPIRE is not refused below: a key
  -- without a time to live could not be taken back if HDEL is refused as well.
  redis.call("PEXPIRE", lock, lease_text)
end
if not mine or reserved then redis.call("HSET", lock, field, "1") end
-- The time to live of a reservation must not lengthen a lease.
if pttl < lease or reserved then redis.call("PEXPIRE", lock, lease_text) end
if passes_on then redis.pcall("ZREM", line, field) end
return {1, now, token}
