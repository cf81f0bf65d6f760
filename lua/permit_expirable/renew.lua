--[[
  Moves the ends of the permits of many holds. All permits of a hold, or it is lost. Never shortens,
  never creates.

  KEYS[i]      permits    sorted set: "<hold field>:<number>" -> the permit's end in ms
  ARGV[1]      not_after  server time in us after which nothing is renewed
  ARGV[2i]     field      "<client uuid>:<hold id>:<want>:<own>"
  ARGV[2i+1]   lease_ms   from now on; 1 asks whether the hold is there and extends nothing

  Returns {code, time in us, ...}
    {1, time, r1, r2, ...}  for each hold: 1 renewed, 0 one of its permits is gone or has run out, -3
                            the permits' key has a value of another type, -5 Redis refused to touch
                            them
    {-1, time}              late: nothing done
    {-9, time, n}           ARGV[n] not allowed
]]
-- include semaphore/body/permits.lua
-- include permit_expirable/body/slack.lua
-- include permit_expirable/body/move.lua

local clock = redis.call("TIME")
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
local now_ms = math.floor(now / 1000)
local not_after = tonumber(ARGV[1])
if not not_after or not_after < 0 or not_after > 9007199254740991 or not_after % 1 ~= 0 then
  return {-9, now, 1}
end
if #ARGV ~= 1 + 2 * #KEYS then return {-9, now, #ARGV} end
for i = 1, #KEYS do
  local lease = tonumber(ARGV[2 * i + 1])
  if not wants(ARGV[2 * i]) then return {-9, now, 2 * i} end
  if not lease or lease < 1 or lease > 86400000 or lease % 1 ~= 0 then
    return {-9, now, 2 * i + 1}
  end
end
if now > not_after then return {-1, now} end

local function renew(permits, field, lease)
  local want, ends = wants(field), nil
  for i = 1, want do
    ends = redis.pcall("ZSCORE", permits, permit_of(field, i))
    if type(ends) == "table" then
      local kind = redis.call("TYPE", permits).ok
      if kind == "zset" or kind == "none" then return -5, ends end
      return -3
    end
    if not ends or tonumber(ends) <= now_ms - SLACK_MS then return 0 end
  end
  if lease > 1 and tonumber(ends) < now_ms + lease + SLACK_MS then
    local refused = move_ends(permits, field, want, lease, now_ms)
    if refused then return -5, refused end
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
-- Refused for every hold: Redis's own words say why better than a number.
if refused and not answered then return refused end
return answer
