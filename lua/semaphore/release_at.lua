--[[
  Gives up a hold now, and frees its permits at a given time: until then they stay taken, and nobody
  renews them. It passes nothing on, but tells those who wait to try.

  KEYS[1]  permits   sorted set: "<hold field>:<number>" -> the permit's end in ms
  ARGV[1]  field     "<client uuid>:<hold id>:<want>:<own>"
  ARGV[2]  free_at   server time in us before which nobody else may have the permits
  ARGV[3]  most_ms   how long they stay taken at most, should the server's clock have been set
  ARGV[4]  channel   where it is announced, so that waiters hear of the new end
  ARGV[5]  verb      PUBLISH or SPUBLISH

  Returns {code, time in us, ...}
    {2, time, receivers}  given up; the permits are taken until free_at; receivers -1 when publishing
                          was refused
    {1, time, receivers}  given up and published: the time was over
    {0, time}             the hold had no permits
    {-3, time}            the permits' key has a value of another kind
    {-9, time, n}         ARGV[n] not allowed
]]
-- include semaphore/body/permits.lua
-- include semaphore/body/take.lua
-- include semaphore/body/give_up.lua

local permits = KEYS[1]
local field, channel, verb = ARGV[1], ARGV[4], ARGV[5]
local free_at, most = tonumber(ARGV[2]), tonumber(ARGV[3])

local clock = redis.call("TIME")
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
local now_ms = math.floor(now / 1000)
local want = wants(field)
if not want then return {-9, now, 1} end
if not free_at or free_at < 0 or free_at > 9007199254740991 or free_at % 1 ~= 0 then
  return {-9, now, 2}
end
if not most or most < 1 or most > 86400000 or most % 1 ~= 0 then return {-9, now, 3} end
if not channel or #channel == 0 then return {-9, now, 4} end
if verb ~= "PUBLISH" and verb ~= "SPUBLISH" then return {-9, now, 5} end

-- What becomes of an error of Redis: it is told, unless the key has a value of another kind.
local function refused_or_foreign(refused)
  local kind = redis.call("TYPE", permits).ok
  if kind == "zset" or kind == "none" then return refused end
  return {-3, now}
end

local rest = math.floor((free_at - now + 999) / 1000)
if rest > most then rest = most end
if rest > 0 then
  local mine = redis.pcall("ZSCORE", permits, permit_of(field, 1))
  if type(mine) == "table" then return refused_or_foreign(mine) end
  if not mine then return {0, now} end
  local refused = take(permits, field, want, rest, now_ms)
  if refused then return refused end
else
  local there = give_up(permits, field, want)
  if type(there) == "table" then return refused_or_foreign(there) end
  if there == 0 then return {0, now} end
end
local receivers = redis.pcall(verb, channel, "0")
if type(receivers) == "table" then receivers = -1 end
if rest > 0 then return {2, now, receivers} end
return {1, now, receivers}
