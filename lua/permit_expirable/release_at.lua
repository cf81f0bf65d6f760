--[[
  Gives up a hold now, and frees its permits at a given time: until then they stay taken, and nobody
  renews them. Those who wait are told to try.

  KEYS[1]  lock     string: how many permits are free, once their number was set
  KEYS[2]  permits  sorted set: "<hold field>:<number>" -> the permit's end in ms
  ARGV[1]  field    "<client uuid>:<hold id>:<want>:<own>"
  ARGV[2]  free_at  server time in us before which nobody else may have the permits
  ARGV[3]  most_ms  how long they stay taken at most, should the server's clock have been set; their
                    end is 5 s later
  ARGV[4]  channel  where it is announced how many are free, or that the end is a new one
  ARGV[5]  verb     PUBLISH or SPUBLISH

  Returns {code, time in us, ...}
    {2, time, receivers}  given up; the permits are taken until free_at; receivers -1 when publishing
                          was refused
    {1, time, receivers}  given up and published: the time was over
    {0, time}             the hold had no permits
    {-3, time}            the permits' key has a value of another type
    {-9, time, n}         ARGV[n] not allowed
]]
-- include semaphore/body/permits.lua
-- include permit_expirable/body/slack.lua
-- include permit_expirable/body/free.lua
-- include permit_expirable/body/give_back.lua
-- include permit_expirable/body/move.lua

local lock, permits = KEYS[1], KEYS[2]
local field, channel, verb = ARGV[1], ARGV[4], ARGV[5]
local free_at, most = tonumber(ARGV[2]), tonumber(ARGV[3])

local clock = redis.call("TIME")
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
local want = wants(field)
if not want then return {-9, now, 1} end
if not free_at or free_at < 0 or free_at > 9007199254740991 or free_at % 1 ~= 0 then
  return {-9, now, 2}
end
if not most or most < 1 or most > 86400000 or most % 1 ~= 0 then return {-9, now, 3} end
if not channel or #channel == 0 then return {-9, now, 4} end
if verb ~= "PUBLISH" and verb ~= "SPUBLISH" then return {-9, now, 5} end

local rest = math.min(math.floor((free_at - now + 999) / 1000), most)
local free = 1
if rest > 0 then
  local mine = redis.pcall("ZSCORE", permits, permit_of(field, 1))
  if type(mine) == "table" then
    local kind = redis.call("TYPE", permits).ok
    if kind == "zset" or kind == "none" then return mine end
    return {-3, now}
  end
  if not mine then return {0, now} end
  local refused = move_ends(permits, field, want, rest, math.floor(now / 1000))
  if refused then return refused end
else
  local there = nil
  there, free = give_back(lock, permits, field, want, now)
  if type(there) == "table" then return there end
  if there == 0 then return {0, now} end
end
local receivers = redis.pcall(verb, channel, free)
if type(receivers) == "table" then receivers = -1 end
if rest > 0 then return {2, now, receivers} end
return {1, now, receivers}
