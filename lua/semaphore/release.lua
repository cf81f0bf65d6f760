--[[
  Gives up all permits of a hold, what is reserved for it, or its place in the line, and passes on
  what is free. It may be repeated at will.

  KEYS[1]  lock     hash: kind -> "semaphore", permits -> how many there are, once it was set
  KEYS[2]  permits  sorted set: "<hold field>:<number>" -> the permit's end in ms
  KEYS[3]  heard    sorted set: "<hold field>:1" of who waits -> ms until which it counts as alive
  KEYS[4]  line     sorted set: hold field -> ticket; may be left out: then free permits are
                    announced to everybody, and no place is given up
  ARGV[1]  field    "<client uuid>:<hold id>:<want>:<own>"
  ARGV[2]  channel  where free permits are announced
  ARGV[3]  verb     PUBLISH or SPUBLISH

  Returns {code, time in us, ...}
    {1, time, receivers}  given up; how many clients received the last message, -1 when publishing
                          was refused
    {0, time}             the hold had no permits; what is free was passed on
    {-3, time}            the permits' key has a value of another kind
    {-9, time, n}         ARGV[n] not allowed
]]
-- include semaphore/body/permits.lua
-- include semaphore/body/take.lua
-- include semaphore/body/give_up.lua
-- include semaphore/body/pass_on.lua

local lock, permits, heard, line = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local field, channel, verb = ARGV[1], ARGV[2], ARGV[3]

local clock = redis.call("TIME")
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
local want = wants(field)
if not want then return {-9, now, 1} end
if not channel or #channel == 0 then return {-9, now, 2} end
if verb ~= "PUBLISH" and verb ~= "SPUBLISH" then return {-9, now, 3} end

-- What Redis does not tell is known before anything changes.
local known = redis.pcall("HMGET", lock, "kind", "permits")
if known.err then
  local kind = redis.call("TYPE", lock).ok
  if kind == "hash" or kind == "none" then return known end
end
local is_ours = known[1] == "semaphore"
local there = give_up(permits, field, want)
local foreign = type(there) == "table"
if foreign then
  local kind = redis.call("TYPE", permits).ok
  if kind == "zset" or kind == "none" then return there end
end
if line and (foreign or there == 0) then
  -- Leaves the line.
  local left = redis.pcall("ZREM", line, field)
  if type(left) == "table" and redis.call("TYPE", line).ok == "zset" then return left end
  redis.pcall("ZREM", heard, permit_of(field, 1))
end
if foreign then return {-3, now} end

-- What has run out comes back as well, and what is free goes to those in line.
local now_ms = math.floor(now / 1000)
redis.pcall("ZREMRANGEBYSCORE", permits, "-inf", now_ms)
local taken = redis.pcall("ZCARD", permits)
local first, receivers
if line and type(taken) == "number" then
  taken, first, receivers = pass_on(
    permits, heard, line, tonumber(is_ours and known[2]), taken, BEHIND_ALL, now_ms, channel, verb
  )
end
if there > 0 and not receivers and type(first) ~= "string" then
  receivers = redis.pcall(verb, channel, "0")
  if type(receivers) == "table" then receivers = -1 end
end
-- When nothing is left of the semaphore, its key goes as well, unless the number was set.
if line and is_ours and not known[2] and redis.pcall("EXISTS", permits, line) == 0 then
  redis.pcall("HDEL", lock, "kind")
end
if there == 0 then return {0, now} end
return {1, now, receivers or 0}
