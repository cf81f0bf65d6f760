--[[
  Tells how many permits there are, and how many of them are taken. Reads only.

  KEYS[1]  lock     hash: kind -> "semaphore", permits -> how many there are, once it was set
  KEYS[2]  permits  sorted set: "<hold field>:<number>" -> the permit's end in ms

  Returns {code, time in us, ...}
    {4, time, pttl, number, taken}
                              a semaphore, or nothing at all; number -1: nobody has set it
    {2, time, pttl, type}     a value that is not a hash
    {6, time, pttl, what}     another kind: 4 a read-write lock, 8 another hash, 10 a count-down latch,
                              12 a lock
]]
-- include semaphore/body/other.lua

local lock, permits = KEYS[1], KEYS[2]
local clock = redis.call("TIME")
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])

local kind = redis.call("TYPE", lock).ok
local pttl = redis.call("PTTL", lock)
local number = -1
if kind == "hash" then
  local found = redis.call("HGET", lock, "kind")
  if found ~= "semaphore" then return {6, now, pttl, other_hash(lock, found)} end
  number = tonumber(redis.call("HGET", lock, "permits")) or -1
elseif kind ~= "none" then
  return {2, now, pttl, kind}
end
local now_ms = string.format("(%.0f", math.floor(now / 1000))
return {4, now, pttl, number, redis.call("ZCOUNT", permits, now_ms, "+inf")}
