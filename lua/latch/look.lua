--[[
  Tells the count of a latch. Reads only.

  KEYS[1]  latch  hash: kind -> "latch", count -> count; or a string: the count
  ARGV[1]  format  what the key of a latch is: hash, or in the profile Redisson string

  Returns {code, time in us, ...}
    {1, time, count, pttl}  there is a latch; pttl in ms, -1 without a time to live
    {0, time}               there is none
    {-4, time, what}        the key is no latch: 1 a value of another type, 2 another hash, 3 a
                            read-write lock, 4 a semaphore, 5 a count that is not a whole number,
                            6 a lock, 7 a latch that is a hash, which this profile does not have
    {-9, time, n}           ARGV[n] not allowed
]]
local latch, format = KEYS[1], ARGV[1]

local clock = redis.call("TIME")
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
-- include latch/body/count.lua

if format ~= "hash" and format ~= "string" then return {-9, now, 1} end
local count, conflict = count_of(latch, format)
if conflict then return {-4, now, conflict} end
if not count then return {0, now} end
return {1, now, count, redis.call("PTTL", latch)}
