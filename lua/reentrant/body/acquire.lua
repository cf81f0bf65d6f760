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

-- Who has the lock, or for whom it is reserved, and for how long.
local holder, left
if pttl ~= -2 and not mine then
  if redis.call("HEXISTS", lock, "mode") == 1 then return {-4, now, 4} end
  if redis.call("HLEN", lock) ~= 1 then return {-4, now, 2} end
  if count > 1 then return {-3, now} end
  holder, left = redis.call("HKEYS", lock)[1], pttl
end

if count > 1 then
  if mine == "0" then return {-2, now} end
  redis.call("HSET", lock, field, count)
  if pttl < lease then redis.call("PEXPIRE", lock, lease) end
  return {1, now, 0}
end

local passes_on = pttl == -2 and mode == "again"
if not mine and mode == "again" and not line then return {-5, now} end
if passes_on then
  local first = redis.pcall("ZRANGE", line, 0, 0, "WITHSCORES")
  if first.err then
    local kind = redis.call("TYPE", line).ok
    if kind == "zset" or kind == "none" then
      return {err = string.format("%s (ZRANGE)", first.err)}
    end
    return {-4, now, 6}
  end
  local asks = not first[1] or first[1] == field or (ticket > 0 and ticket < tonumber(first[2]))
  -- If Redis refuses the reservation, the lock is free, and nobody else asks.
  if not asks and reserve(lock, line, first[1], channel, verb) then
    holder, left = first[1], RESERVATION_MS
  end
end

if holder then
  if mode == "try" or not line then return {0, now, left, holder} end
  local mine_or_new, rank = wait(line, field, ticket, hears == "1", now)
  if not mine_or_new then return rank end
  return {0, now, left, holder, mine_or_new, rank}
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
if not mine or mine == "0" then redis.call("HSET", lock, field, "1") end
-- The time to live of a reservation must not lengthen a lease.
if pttl < lease or mine == "0" then redis.call("PEXPIRE", lock, lease_text) end
if passes_on then redis.pcall("ZREM", line, field) end
return {1, now, token}
