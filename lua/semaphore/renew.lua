--[[
  Moves the ends of the permits of many holds. All permits of a hold, or it is lost. Never shortens,
  never creates.

  KEYS[2i-1]   lock       hash: kind -> "semaphore", permits -> how many there are, once it was set
  KEYS[2i]     permits    sorted set: "<hold field>:<number>" -> the permit's end in ms
  ARGV[1]      not_after  server time in us after which nothing is renewed
  ARGV[2i]     field      "<client uuid>:<hold id>:<want>:<own>"
  ARGV[2i+1]   lease_ms   from now on; 1 asks whether the hold is there and extends nothing

  Returns {code, time in us, ...}
    {1, time, r1, r2, ...}  for each hold: 1 renewed, 0 one of its permits is gone or has run out, -3
                            the permits' key has a value of another kind, -5 Redis refused to touch
                            them
    {-1, time}              late: nothing done
    {-9, time, n}           ARGV[n] not allowed
]]
-- include semaphore/body/permits.lua
-- include semaphore/body/take.lua

local clock = redis.call("TIME")
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
local now_ms = math.floor(now / 1000)
local not_after = tonumber(ARGV[1])
if not not_after or not_after < 0 or not_after > 9007199254740991 or not_after % 1 ~= 0 then
  return {-9, now, 1}
end
if #ARGV ~= 1 + #KEYS then return {-9, now, #ARGV} end
for i = 1, #KEYS / 2 do
  local lease = tonumber(ARGV[2 * i + 1])
  if not wants(ARGV[2 * i]) then return {-9, now, 2 * i} end
  if not lease or lease < 1 or lease > 86400000 or lease % 1 ~= 0 then
    return {-9, now, 2 * i + 1}
  end
end
if now > not_after then return {-1, now} end

-- The key of the semaphore lives at least as long as its permits, if it still is one.
local function keep(lock, lease)
  if redis.pcall("HGET", lock, "kind") ~= "semaphore" then return end
  local left = redis.call("PTTL", lock)
  if left ~= -1 and left < lease then redis.pcall("PEXPIRE", lock, lease) end
end

local function renew(lock, permits, field, lease)
  local want, ends = wants(field), nil
  for i = 1, want do
    ends = redis.pcall("ZSCORE", permits, permit_of(field, i))
    if type(ends) == "table" then
      local kind = redis.call("TYPE", permits).ok
      if kind == "zset" or kind == "none" then return -5, ends end
      return -3
    end
    if not ends or tonumber(ends) <= now_ms then return 0 end
  end
  if lease > 1 and tonumber(ends) < now_ms + lease then
    local refused = take(permits, field, want, lease, now_ms)
    if refused then return -5, refused end
    keep(lock, lease)
  end
  return 1
end

local answer = {1, now}
local refused, answered
for i = 1, #KEYS / 2 do
  local result, failure =
    renew(KEYS[2 * i - 1], KEYS[2 * i], ARGV[2 * i], tonumber(ARGV[2 * i + 1]))
  answer[i + 2] = result
  if failure then refused = refused or failure else answered = true end
end
-- Refused for every hold: Redis's own words say why better than a number.
if refused and not answered then return refused end
return answer
