-- Takes one lock, or sets its hold count, once acquire.lua has read the arguments.
-- Included by acquire.lua, whose header explains arguments and replies, and by
-- several/reentrant.lua.
--
-- Uses channel, field, hears, line, lock, mode, now, ticket, verb

-- include reentrant/body/arguments.lua
if line and mode == "again" then
  if not channel or #channel == 0 then return {-9, now, 8} end
  if verb ~= "PUBLISH" and verb ~= "SPUBLISH" then return {-9, now, 9} end
end
-- include reentrant/body/look.lua

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

-- include reentrant/body/grant.lua
