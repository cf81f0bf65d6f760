--[[
  Sets how many permits there are, for everybody and for good; or adds to that number. Once for each
  operation: a late copy does not undo what others have set since. Nobody loses permits by it: if
  more are out, less than none are free. Those who wait are told to try.

  KEYS[1]  lock       string: how many permits are free, once their number was set
  KEYS[2]  operation  string: the number that this operation has made
  KEYS[3]  permits    sorted set: the id of each permit that is out -> its end in ms
  ARGV[1]  how        "set" or "add"
  ARGV[2]  number     of permits, or of those that are added
  ARGV[3]  own        how many there are for the client if nobody has set the number
  ARGV[4]  not_after  server time in us after which nothing is done
  ARGV[5]  memory_ms  how long after not_after the result is remembered
  ARGV[6]  channel    where it is announced how many are free
  ARGV[7]  verb       PUBLISH or SPUBLISH

  Returns {code, time in us, ...}
    {1, time, number}  how many this operation has made
    {-1, time}         late: nothing done
    {-4, time, what}   conflict: 4 read-write lock, 8 another hash, 9 permits not a sorted set, 10
                       count-down latch, 12 lock, 13 other data, 14 semaphore of the profile Native
    {-6, time, number} there would be too many; there are so many
    {-9, time, n}      ARGV[n] not allowed
]]
-- include semaphore/body/other.lua
-- include permit_expirable/body/other.lua
-- include permit_expirable/body/free.lua
-- include permit_expirable/body/out.lua
-- include latch/body/memory.lua

local lock, operation, permits = KEYS[1], KEYS[2], KEYS[3]
local how, channel, verb = ARGV[1], ARGV[6], ARGV[7]
local number, own = tonumber(ARGV[2]), tonumber(ARGV[3])
local not_after, memory = tonumber(ARGV[4]), tonumber(ARGV[5])

local clock = redis.call("TIME")
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
if how ~= "set" and how ~= "add" then return {-9, now, 1} end
if not number or number < 1 or number > 1000000 or number % 1 ~= 0 then return {-9, now, 2} end
if not own or own < 1 or own > 1000000 or own % 1 ~= 0 then return {-9, now, 3} end
if not not_after or not_after < 0 or not_after > 9007199254740991 or not_after % 1 ~= 0 then
  return {-9, now, 4}
end
if not memory or memory < 1 or memory > 86400000 or memory % 1 ~= 0 then return {-9, now, 5} end
if not channel or #channel == 0 then return {-9, now, 6} end
if verb ~= "PUBLISH" and verb ~= "SPUBLISH" then return {-9, now, 7} end

local done = redis.call("GET", operation)
if done then return {1, now, tonumber(done)} end
if now > not_after then return {-1, now} end

local known, is_other, refused = read_free(lock)
if refused then return refused end
if is_other then return {-4, now, other_data(lock)} end
local out, is_broken, untold = count_out(permits)
if untold then return untold end
if is_broken then return {-4, now, 9} end
if how == "add" then
  -- Redisson can make the number smaller than 0.
  local before = math.max(known and known + out or own, 0)
  if before + number > 1000000 then return {-6, now, before} end
  number = before + number
end
-- Before the number: what is not remembered might be done twice.
redis.call("SET", operation, number, "PX", kept_for(now, not_after, memory))
local free = redis.pcall("INCRBY", lock, number - out - (known or 0))
if type(free) == "table" then
  redis.pcall("DEL", operation)
  return free
end
redis.pcall(verb, channel, math.max(free, 1))
return {1, now, number}
