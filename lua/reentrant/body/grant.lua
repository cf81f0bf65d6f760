-- Grants the lock to the one that asks.
--
-- Uses lock, fence, line, field, lease, lease_text, mine, reserved, pttl, passes_on, now, now_text

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
