-- Takes one lock, or sets its hold count, once acquire.lua has read the arguments.
-- Included by acquire.lua, whose header explains arguments and replies, and by
-- several/reentrant.lua.
--
-- Uses lock, fence, field, count, lease, lease_text, not_after, now, now_text

if not field or #field == 0 then return {-9, now, 1} end
if not count or count < 1 or count > 65535 or count % 1 ~= 0 then return {-9, now, 2} end
if not lease or lease < 1 or lease > 86400000 or lease % 1 ~= 0 then return {-9, now, 3} end
if not not_after or not_after < 0 or not_after > 9007199254740991 or not_after % 1 ~= 0 then return {-9, now, 4} end
if now > not_after then return {-1, now} end

local pttl = redis.call("PTTL", lock)
if pttl == -2 and count > 1 then return {-2, now} end

local mine = false
if pttl ~= -2 then
  mine = redis.pcall("HGET", lock, field)
  if type(mine) == "table" then
    if mine.err and redis.call("TYPE", lock).ok == "hash" then return {err = string.format("%s (HGET)", mine.err)} end
    return {-4, now, 1}
  end
end

if pttl ~= -2 and not mine then
  if redis.call("HEXISTS", lock, "mode") == 1 then return {-4, now, 4} end
  if redis.call("HLEN", lock) ~= 1 then return {-4, now, 2} end
  if count > 1 then return {-3, now} end
  return {0, now, pttl, redis.call("HKEYS", lock)[1]}
end

if count > 1 then
  redis.call("HSET", lock, field, count)
  if pttl < lease then redis.call("PEXPIRE", lock, lease) end
  return {1, now, 0}
end

local last = redis.pcall("GET", fence)
if type(last) == "table" then
  local kind = redis.call("TYPE", fence).ok
  if last.err and (kind == "string" or kind == "none") then return {err = string.format("%s (GET)", last.err)} end
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
  redis.call("HSET", lock, field, "1")
end
if pttl < lease then redis.call("PEXPIRE", lock, lease_text) end
return {1, now, token}
