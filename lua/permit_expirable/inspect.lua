--[[
  Tells how many permits there are, and how many of them are taken. Reads only.

  KEYS[1]  lock     string: how many permits are free, once their number was set
  KEYS[2]  permits  sorted set: the id of each permit that is out -> its end in ms

  Returns {code, time in us, ...}
    {4, time, pttl, number, taken}
                              a semaphore, or nothing at all; number -1: nobody has set it
    {6, time, pttl, what}     something else: 4 a read-write lock, 8 another hash, 9 permits that are
                              not a sorted set, 10 a count-down latch, 12 a lock, 13 other data, 14
                              a semaphore of the profile Native
]]
-- include semaphore/body/other.lua
-- include permit_expirable/body/other.lua
-- include permit_expirable/body/slack.lua
-- include permit_expirable/body/free.lua
-- include permit_expirable/body/out.lua

local lock, permits = KEYS[1], KEYS[2]
local clock = redis.call("TIME")
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])

local pttl = redis.call("PTTL", lock)
local known, is_other, refused = read_free(lock)
if refused then return refused end
if is_other then return {6, now, pttl, other_data(lock)} end
local out, is_broken, untold = count_out(permits)
if untold then return untold end
if is_broken then return {6, now, pttl, 9} end
local number = -1
if known then number = math.max(known + out, 0) end
local last = math.floor(now / 1000) - SLACK_MS
return {4, now, pttl, number, out - redis.call("ZCOUNT", permits, "-inf", last)}
