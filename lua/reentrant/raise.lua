--[[
  Raises the fence counter to the token that a hold has got on several servers together, if that
  hold has the lock here. It may be repeated at will.

  KEYS[1]  lock   hash: hold field -> hold count; a count of 0 is a reservation
  KEYS[2]  fence  string: the last fencing token of this slot
  ARGV[1]  field  "<client uuid>:<hold id>"
  ARGV[2]  token  the counter is at least this afterwards

  Returns {code, time in us, ...}
    {1, time}      the counter is that high, or was
    {0, time}      the hold does not have the lock: nothing done
    {-4, time, 5}  fence counter not a number
    {-9, time, n}  ARGV[n] not allowed
]]
local lock, fence = KEYS[1], KEYS[2]
local field, token = ARGV[1], tonumber(ARGV[2])

local clock = redis.call("TIME")
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
if not field or #field == 0 then return {-9, now, 1} end
if not token or token < 1 or token > 9007199254740990 or token % 1 ~= 0 then
  return {-9, now, 2}
end

local mine = redis.pcall("HGET", lock, field)
if type(mine) == "table" then
  local kind = redis.call("TYPE", lock).ok
  if kind == "hash" or kind == "none" then
    return {err = string.format("%s (HGET)", mine.err)}
  end
  return {0, now}
end
if not mine or mine == "0" then return {0, now} end

local last = redis.pcall("GET", fence)
if type(last) == "table" then
  local kind = redis.call("TYPE", fence).ok
  if kind == "string" or kind == "none" then
    return {err = string.format("%s (GET)", last.err)}
  end
  return {-4, now, 5}
end
if last then
  last = tonumber(last)
  if not last or last < 0 or last > 9007199254740990 or last % 1 ~= 0 then return {-4, now, 5} end
end
if not last or last < token then redis.call("SET", fence, token) end
return {1, now}
