--[[
  Extends the leases of many holds at once. Never shortens one, never creates one.

  KEYS[i]      lock       hash: hold field -> hold count; a count of 0 is a reservation
  ARGV[1]      not_after  server time in us after which nothing is renewed
  ARGV[2i]     field      "<client uuid>:<hold id>" of KEYS[i]
  ARGV[2i+1]   lease_ms   of KEYS[i]; 1 asks whether the hold is there and extends nothing

  Returns {code, time in us, ...}
    {1, time, r1, r2, ...}  for each key: 1 renewed, 0 gone, -3 another hold or value has the key,
                            or it is reserved, -5 Redis refused to touch this key
    {-1, time}              late: nothing done
    {-9, time, n}           ARGV[n] not allowed
]]
local clock = redis.call("TIME")
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
local not_after = tonumber(ARGV[1])
if not not_after or not_after < 0 or not_after > 9007199254740991 or not_after % 1 ~= 0 then
  return {-9, now, 1}
end
if #KEYS == 0 or #ARGV ~= 1 + 2 * #KEYS then return {-9, now, #ARGV} end
for i = 1, #KEYS do
  local lease = tonumber(ARGV[2 * i + 1])
  if #ARGV[2 * i] == 0 then return {-9, now, 2 * i} end
  if not lease or lease < 1 or lease > 86400000 or lease % 1 ~= 0 then
    return {-9, now, 2 * i + 1}
  end
end
if now > not_after then return {-1, now} end

local function renew(lock, field, lease)
  local mine = redis.pcall("HGET", lock, field)
  if type(mine) == "table" then
    local kind = redis.call("TYPE", lock).ok
    if kind == "hash" or kind == "none" then
      return -5, {err = string.format("%s (HGET)", mine.err)}
    end
    return -3
  end
  -- A reservation is no hold.
  if not mine or mine == "0" then
    if redis.call("EXISTS", lock) == 0 then return 0 end
    return -3
  end
  if lease > 1 and redis.call("PTTL", lock) < lease then
    local done = redis.pcall("PEXPIRE", lock, lease)
    if type(done) == "table" then return -5, {err = string.format("%s (PEXPIRE)", done.err)} end
  end
  return 1
end

local answer = {1, now}
local refused, answered
for i = 1, #KEYS do
  local result, failure = renew(KEYS[i], ARGV[2 * i], tonumber(ARGV[2 * i + 1]))
  answer[i + 2] = result
  if failure then refused = refused or failure else answered = true end
end
-- Refused for every key: Redis's own words say why better than a number.
if refused and not answered then return refused end
return answer
