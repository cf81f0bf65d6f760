--[[
  Removes a latch, once, however often this arrives, and tells those who wait: it counts as open. All
  copies of the command of one call have the same operation and the same not_after.

  KEYS[1]  latch  hash: kind -> "latch", count -> count; or a string: the count
  KEYS[2]  op     string: what this operation has come to; empty if Redis refused it in the middle,
                  when nothing of it was done
  ARGV[1]  not_after  server time in us; later, nothing is done
  ARGV[2]  keep       ms for which the outcome is kept after not_after, 1 and more
  ARGV[3]  format     what the key of a latch is: hash, or in the profile Redisson string
  ARGV[4]  channel    where those who wait listen
  ARGV[5]  verb       PUBLISH or SPUBLISH

  Returns {code, time in us, ...}
    {1, time}          removed, by this copy or an earlier one
    {0, time}          there was no latch, for this copy or an earlier one
    {-1, time}         late, and nothing is known of an earlier copy
    {-4, time, what}   the key is no latch: 1 a value of another type, 2 another hash, 3 a read-write
                       lock, 4 a semaphore, 5 a count that is not a whole number, 6 a lock,
                       7 a latch that is a hash, which this profile does not have
    {-9, time, n}      ARGV[n] not allowed
]]
local latch, op = KEYS[1], KEYS[2]
local not_after, keep, format = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
local channel, verb = ARGV[4], ARGV[5]

local clock = redis.call("TIME")
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
-- include latch/body/count.lua
-- include latch/body/memory.lua
-- include latch/body/say.lua

if not not_after or not_after % 1 ~= 0 then return {-9, now, 1} end
if not keep or keep < 1 or keep % 1 ~= 0 then return {-9, now, 2} end
if format ~= "hash" and format ~= "string" then return {-9, now, 3} end
if not channel or #channel == 0 then return {-9, now, 4} end
if verb ~= "PUBLISH" and verb ~= "SPUBLISH" then return {-9, now, 5} end

local before = tonumber(redis.call("GET", op))
if before then return say(before) end
if now > not_after then return {-1, now} end

local count, conflict = count_of(latch, format)
local done = 0
if conflict then done = -10 - conflict end
if count then done = 1 end
local life = kept_for(now, not_after, keep)
if done ~= 1 then
  redis.call("SET", op, done, "PX", life)
  return say(done)
end
redis.call("SET", op, "", "PX", life)
redis.call("DEL", latch)
redis.call("SET", op, done, "PX", life)
redis.pcall(verb, channel, "0")
return say(done)
