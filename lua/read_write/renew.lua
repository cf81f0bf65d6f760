--[[
  Extends the leases of many holds at once. Never shortens one, never creates one.

  KEYS[2*i-1]  lock       hash: mode -> "read" or "write", hold field -> reads,
                          "<hold field>:write" -> writes; a count of 0 is a reservation
  KEYS[2*i]    timeout    of the same hold: string "<base>:<hold field>:rwlock_timeout:1"
  ARGV[1]      not_after  server time in us after which nothing is renewed
  ARGV[2*i]    field      "<client uuid>:<hold id>" of KEYS[2*i]
  ARGV[2*i+1]  lease_ms   of KEYS[2*i]; 1 asks whether the hold is there and extends nothing

  Returns {code, time in us, ...}
    {1, time, r1, r2, ...}  for each hold: 1 renewed, 0 gone, -3 others or another value have the
                            key, -5 Redis refused to touch it
    {-1, time}              late: nothing done
    {-9, time, n}           ARGV[n] not allowed
]]
local clock = redis.call("TIME")
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
local not_after = tonumber(ARGV[1])
if not not_after or not_after < 0 or not_after > 9007199254740991 or not_after % 1 ~= 0 then
  return {-9, now, 1}
end
if #KEYS == 0 or #KEYS % 2 == 1 or #ARGV ~= 1 + #KEYS then return {-9, now, #ARGV} end
for i = 1, #KEYS / 2 do
  local lease = tonumber(ARGV[2 * i + 1])
  if #ARGV[2 * i] == 0 then return {-9, now, 2 * i} end
  if not lease or lease < 1 or lease > 86400000 or lease % 1 ~= 0 then
    return {-9, now, 2 * i + 1}
  end
end
if now > not_after then return {-1, now} end

-- What has no end keeps none.
local function extend(key, lease)
  local left = redis.call("PTTL", key)
  if left < 0 or left >= lease then return end
  local done = redis.pcall("PEXPIRE", key, lease)
  if type(done) == "table" then return {err = string.format("%s (PEXPIRE)", done.err)} end
end

local function renew(lock, timeout, field, lease)
  local mine_w = redis.pcall("HGET", lock, string.format("%s:write", field))
  if type(mine_w) == "table" then
    local kind = redis.call("TYPE", lock).ok
    if kind == "hash" or kind == "none" then
      return -5, {err = string.format("%s (HGET)", mine_w.err)}
    end
    return -3
  end
  local mine_r = redis.call("HGET", lock, field)
  -- A reservation is no hold.
  local reading, writing = mine_r and mine_r ~= "0", mine_w and mine_w ~= "0"
  if not reading and not writing then
    if redis.call("EXISTS", lock) == 0 then return 0 end
    return -3
  end
  if reading then
    -- Others may count the reader as dead, so that nothing brings it back.
    if not writing and redis.call("EXISTS", timeout) == 0 then return 0 end
    local failure = extend(timeout, lease)
    if failure then return -5, failure end
  end
  -- The timeout key never outlives the lock.
  local failure = extend(lock, lease)
  if failure then return -5, failure end
  return 1
end

local answer = {1, now}
local refused, answered
for i = 1, #KEYS / 2 do
  local lease = tonumber(ARGV[2 * i + 1])
  local result, failure = renew(KEYS[2 * i - 1], KEYS[2 * i], ARGV[2 * i], lease)
  answer[i + 2] = result
  if failure then refused = refused or failure else answered = true end
end
-- Refused for every key: Redis's own words say why better than a number.
if refused and not answered then return refused end
return answer
