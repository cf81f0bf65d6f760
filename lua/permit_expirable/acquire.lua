--[[
  Takes all the permits that a hold wants, if so many are free, counting what has run out. A repeat
  changes nothing but the end of the permits. If nobody has set the number of permits, it is set.

  KEYS[1]  lock       string: how many permits are free, once their number was set
  KEYS[2]  fence      string: the last fencing token of this slot
  KEYS[3]  permits    sorted set: "<hold field>:<number>", or the id of a permit of Redisson -> the
                      permit's end in ms
  ARGV[1]  field      "<client uuid>:<hold id>:<want>:<own>": how many permits the hold wants, and
                      how many there are for its client if nobody has set the number
  ARGV[2]  lease_ms   of the permits; their end is 5 s later
  ARGV[3]  not_after  server time in us after which nothing is granted
  ARGV[4]  channel    where it is announced how many are free
  ARGV[5]  verb       PUBLISH or SPUBLISH

  Returns {code, time in us, ...}
    {1, time, token}         granted
    {0, time, ms, holder}    too few are free; when the next permits come back unless they are
                             renewed, and whose they are, in hex if they are Redisson's
    {-1, time}               late: nothing done
    {-4, time, what}         conflict: 4 read-write lock, 5 fence counter not a number, 8 another
                             hash, 9 permits not a sorted set, 10 count-down latch, 12 lock, 13
                             other data, 14 semaphore of the profile Native
    {-6, time, number}       there are only so many
    {-9, time, n}            ARGV[n] not allowed

  After an error no permits are granted. The fence may be higher, the number set, and what had run
  out may have come back.
]]
-- include semaphore/body/permits.lua
-- include semaphore/body/other.lua
-- include permit_expirable/body/other.lua
-- include permit_expirable/body/slack.lua
-- include permit_expirable/body/free.lua
-- include permit_expirable/body/out.lua
-- include read_write/body/next_token.lua

local lock, fence, permits = KEYS[1], KEYS[2], KEYS[3]
local field, channel, verb = ARGV[1], ARGV[4], ARGV[5]
local lease, not_after = tonumber(ARGV[2]), tonumber(ARGV[3])

local clock = redis.call("TIME")
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
local want, own = wants(field)
if not want then return {-9, now, 1} end
if not lease or lease < 1 or lease > 86400000 or lease % 1 ~= 0 then return {-9, now, 2} end
if not not_after or not_after < 0 or not_after > 9007199254740991 or not_after % 1 ~= 0 then
  return {-9, now, 3}
end
if not channel or #channel == 0 then return {-9, now, 4} end
if verb ~= "PUBLISH" and verb ~= "SPUBLISH" then return {-9, now, 5} end
if now > not_after then return {-1, now} end

local known, is_other, refused = read_free(lock)
if refused then return refused end
if is_other then return {-4, now, other_data(lock)} end
local out, is_broken, untold = count_out(permits)
if untold then return untold end
if is_broken then return {-4, now, 9} end
local free = known or own - out

-- What ended in this ms or before has run out.
local now_ms = math.floor(now / 1000)
local last = now_ms - SLACK_MS
local over = redis.call("ZCOUNT", permits, "-inf", last)
local missing = 0
for i = 1, want do
  local ends = redis.call("ZSCORE", permits, permit_of(field, i))
  if not ends or tonumber(ends) <= last then missing = missing + 1 end
end
if missing > 0 and want > free + out then return {-6, now, math.max(free + out, 0)} end
if missing > 0 and missing > free + over then
  local after = string.format("(%.0f", last)
  local nearest = redis.call("ZRANGEBYSCORE", permits, after, "+inf", "WITHSCORES", "LIMIT", 0, 1)
  local holder = string.match(nearest[1], "^(.*):%d+$")
  if not holder then
    -- Redisson shows its ids like this.
    holder = string.gsub(nearest[1], ".", function(byte)
      return string.format("%02x", string.byte(byte))
    end)
  end
  return {0, now, tonumber(nearest[2]) - last, holder}
end

local token, failure = next_token(fence, now)
if not token then return failure end
-- The fence first: when memory is short it is the write that Redis refuses, before anything
-- changed.
redis.call("SET", fence, token)
if not known then redis.call("SET", lock, free) end

-- Counted before it is removed, and taken off before it is given: what Redis has done once, it does
-- again to undo it.
if over > 0 then
  redis.call("INCRBY", lock, over)
  local removed = redis.pcall("ZREMRANGEBYSCORE", permits, "-inf", last)
  if type(removed) == "table" then
    redis.call("INCRBY", lock, -over)
    return removed
  end
end
-- Redisson gives the permits the time to live that the name has, and must not lose count of ours.
redis.call("PERSIST", permits)
if missing > 0 then redis.call("INCRBY", lock, -missing) end
for i = 1, want do
  local added = redis.pcall("ZADD", permits, now_ms + lease + SLACK_MS, permit_of(field, i))
  if type(added) == "table" then
    redis.call("INCRBY", lock, missing)
    return added
  end
end
free = free + over - missing
if free > 0 and (over > 0 or not known) then redis.pcall(verb, channel, free) end
return {1, now, token}
