--[[
  Takes all the permits that a hold wants, picks up those that are reserved for it, or waits in the
  line. A repeat changes nothing but the end of the permits.

  KEYS[1]  lock       hash: kind -> "semaphore", permits -> how many there are, once it was set
  KEYS[2]  fence      string: the last fencing token of this slot
  KEYS[3]  permits    sorted set: "<hold field>:<number>" -> the permit's end in ms; a reservation
                      is permits as well
  KEYS[4]  heard      sorted set: "<hold field>:1" of who waits -> ms until which it counts as alive
  KEYS[5]  line       sorted set: hold field -> ticket; may be left out: then nothing is granted but
                      what is reserved
  ARGV[1]  field      "<client uuid>:<hold id>:<want>:<own>": how many permits the hold wants, and
                      how many there are for its client if nobody has set the number
  ARGV[2]  lease_ms   of the permits, exactly
  ARGV[3]  not_after  server time in us after which nothing is granted
  ARGV[4]  mode       "try" does not wait; "first" and "again" wait. All let those in line go first
  ARGV[5]  ticket     of the waiter; 0 if it has none
  ARGV[6]  hears      1 if it hears the messages of the channel, else 0
  ARGV[7]  channel    where reservations are announced
  ARGV[8]  verb       PUBLISH or SPUBLISH

  Returns {code, time in us, ...}
    {1, time, token}         granted
    {0, time, ms, holder}    to a try: too few are free, or somebody goes first; when the next permits
                             run out, and whose they are
    {0, time, ms, holder, ticket, rank}
                             the same to somebody who waits; rank is the number of places with lower
                             tickets
    {-1, time}               late: nothing done
    {-4, time, what}         conflict: 1 not a hash, 4 read-write lock, 5 fence counter not a number,
                             6 line not a sorted set, 8 another hash, 9 permits not a sorted set,
                             10 count-down latch, 12 lock
    {-5, time}               without the line's key, and nothing is reserved for this hold
    {-6, time, number}       there are only so many; the hold has left the line
    {-9, time, n}            ARGV[n] not allowed

  After an error no permits are granted. Times to live may be longer, the fence higher, and the hold
  or those that go first may have lost their places.
]]
-- include semaphore/body/permits.lua
-- include semaphore/body/take.lua
-- include semaphore/body/pass_on.lua
-- include semaphore/body/other.lua
-- include semaphore/body/look.lua

-- How long the line lives after the last attempt of somebody who waits, and how long a place keeps
-- those behind it waiting after its last attempt.
local LINE_MS = 12000

-- Has the key of the semaphore be there for so many ms at least. Once the number was set, it is
-- there for good.
local function keep(lock, ms)
  local left = redis.call("PTTL", lock)
  if left ~= -1 and left < ms then
    -- If the key is absent, this shows that PEXPIRE is not refused below.
    redis.call("PEXPIRE", lock, ms)
  end
  if left == -2 then
    redis.call("HSET", lock, "kind", "semaphore")
    redis.call("PEXPIRE", lock, ms)
  end
end

local lock, fence, permits, heard, line = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local field, mode, hears, channel, verb = ARGV[1], ARGV[4], ARGV[6], ARGV[7], ARGV[8]
local lease, not_after, ticket = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[5])

local clock = redis.call("TIME")
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
local want, own = wants(field)
if not want then return {-9, now, 1} end
if not lease or lease < 1 or lease > 86400000 or lease % 1 ~= 0 then return {-9, now, 2} end
if not not_after or not_after < 0 or not_after > 9007199254740991 or not_after % 1 ~= 0 then
  return {-9, now, 3}
end
if mode ~= "first" and mode ~= "try" and mode ~= "again" then return {-9, now, 4} end
if not ticket or ticket < 0 or ticket > 9007199254740991 or ticket % 1 ~= 0 then
  return {-9, now, 5}
end
if hears ~= "1" and hears ~= "0" then return {-9, now, 6} end
if not channel or #channel == 0 then return {-9, now, 7} end
if verb ~= "PUBLISH" and verb ~= "SPUBLISH" then return {-9, now, 8} end
if now > not_after then return {-1, now} end

local number, answer = look(lock, now)
if answer then return answer end
local most = number or own

-- What has run out does not count.
local now_ms = math.floor(now / 1000)
local from_now = string.format("(%.0f", now_ms)
local taken = redis.pcall("ZCOUNT", permits, from_now, "+inf")
if type(taken) == "table" then
  local kind = redis.call("TYPE", permits).ok
  if kind == "zset" or kind == "none" then return taken end
  return {-4, now, 9}
end

-- Whether all of its permits are there.
local reserved = true
for i = 1, want do
  local mine = redis.call("ZSCORE", permits, permit_of(field, i))
  if not mine or tonumber(mine) <= now_ms then reserved = false end
end
local others, has_place = line, nil
if not reserved then
  if not line then return {-5, now} end
  local kind = redis.call("TYPE", line).ok
  if kind ~= "zset" and kind ~= "none" then return {-4, now, 6} end
  if want > most then
    redis.pcall("ZREM", line, field)
    redis.pcall("ZREM", heard, permit_of(field, 1))
    pass_on(permits, heard, line, number, taken, BEHIND_ALL, now_ms, channel, verb)
    return {-6, now, most}
  end
  others = kind == "zset"

  -- Those with lower tickets go first.
  local before, first = BEHIND_ALL, nil
  if mode ~= "try" and (others or taken + want > most) then
    has_place = redis.call("ZSCORE", line, field)
    if has_place then
      ticket = tonumber(has_place)
    elseif ticket == 0 then
      local last = tonumber(redis.call("ZRANGE", line, -1, -1, "WITHSCORES")[2])
      ticket = now
      if last and last >= now then ticket = last + 1 end
    end
    before = ticket
  end
  if others then
    taken, first = pass_on(permits, heard, line, number, taken, before, now_ms, channel, verb)
  end
  if type(first) == "table" then return first end
  if first or taken + want > most then
    local nearest =
      redis.call("ZRANGEBYSCORE", permits, from_now, "+inf", "WITHSCORES", "LIMIT", 0, 1)
    local left = tonumber(nearest[2]) - now_ms
    local holder = string.match(nearest[1], "^(.*):%d+$") or nearest[1]
    if mode == "try" then return {0, now, left, holder} end
    local rank = redis.call("ZCOUNT", line, "-inf", string.format("(%.0f", ticket))
    if hears == "1" then
      -- The key outlives what may be reserved for the last in line.
      keep(lock, LINE_MS + RESERVATION_MS)
      redis.pcall("ZREMRANGEBYSCORE", heard, "-inf", now_ms)
      take(heard, field, 1, LINE_MS, now_ms)
      -- Before the place is taken, so that no line without a time to live is made.
      local is_there = redis.pcall("PEXPIRE", line, LINE_MS)
      if not has_place and type(is_there) ~= "table" then
        redis.pcall("ZADD", line, string.format("%.0f", ticket), field)
        if is_there == 0 then redis.call("PEXPIRE", line, LINE_MS) end
      end
    elseif has_place then
      redis.pcall("ZREM", line, field)
      redis.pcall("ZREM", heard, permit_of(field, 1))
      pass_on(permits, heard, line, number, taken, BEHIND_ALL, now_ms, channel, verb)
    end
    return {0, now, left, holder, ticket, rank}
  end
end

local last = redis.pcall("GET", fence)
if type(last) == "table" then
  local kind = redis.call("TYPE", fence).ok
  if last.err and (kind == "string" or kind == "none") then return last end
  return {-4, now, 5}
end
local token = now
if last then
  last = tonumber(last)
  if not last or last < 0 or last > 9007199254740990 or last % 1 ~= 0 then return {-4, now, 5} end
  if last >= token then token = last + 1 end
end

-- The fence first: when memory is short it is the write that Redis refuses, before anything
-- changed.
redis.call("SET", fence, token)
redis.call("ZREMRANGEBYSCORE", permits, "-inf", now_ms)
keep(lock, lease)
if has_place then
  redis.call("ZREM", line, field)
  redis.pcall("ZREM", heard, permit_of(field, 1))
end
local refused = take(permits, field, want, lease, now_ms)
if refused then return refused end
-- What is left goes to those behind it.
if others then
  taken = redis.call("ZCARD", permits)
  pass_on(permits, heard, line, number, taken, BEHIND_ALL, now_ms, channel, verb)
end
return {1, now, token}
