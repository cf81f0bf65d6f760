--[[
  Gives up one hold and grants the lock to another of the same client, with nobody in between; or
  lets the first in line have it, behind whom the other then waits.

  KEYS[1]  lock        hash: hold field -> hold count; a count of 0 is a reservation
  KEYS[2]  fence       string: the last fencing token of this slot
  KEYS[3]  line        sorted set: hold field -> ticket; may be left out
  ARGV[1]  from        field of the hold that ends
  ARGV[2]  to          field of the hold that begins, with count 1; it must have no place in line
  ARGV[3]  lease_ms    time to live of the new hold, exactly
  ARGV[4]  not_after   server time in us after which `from` is released and nothing granted
  ARGV[5]  channel     where a freed lock is announced
  ARGV[6]  verb        PUBLISH or SPUBLISH
  ARGV[7]  line_first  1 if the first in line goes before `to`, else 0
  ARGV[8]  hears       1 if the client hears the messages of the channel, else 0

  Returns {code, time in us, ...}
    {1, time, token}       granted to `to`; nothing published
    {5, time, pttl, holder, ticket, rank}
                           `from` is released, and the lock reserved for the first in line, the
                           holder; `to` waits in the line with that ticket, if it hears
    {0, time}              the key is gone; nothing created
    {2, time, receivers}   Redis refused the grant: `from` is released and passed on
    {3, time, receivers}   the hash has other fields: `from` is released and published, nothing
                           granted; the others stay, without a time to live
    {4, time, receivers}   the same, but they keep the time to live: they are a read-write lock, or
                           Redis refused HEXISTS or PERSIST
    {-1, time, receivers}  late: `from` is released and passed on; 0 if `to` has the key already
    {-3, time}             another hold has the key, or it is reserved
    {-9, time, n}          ARGV[n] not allowed
]]
-- include reentrant/body/reserve.lua
-- include reentrant/body/pass_on.lua
-- include reentrant/body/wait.lua

local lock, fence, line = KEYS[1], KEYS[2], KEYS[3]
local from, to, channel, verb = ARGV[1], ARGV[2], ARGV[5], ARGV[6]
local line_first, hears = ARGV[7], ARGV[8]

local clock = redis.call("TIME")
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
local lease, not_after = tonumber(ARGV[3]), tonumber(ARGV[4])
if not from or #from == 0 then return {-9, now, 1} end
if not to or #to == 0 or to == from then return {-9, now, 2} end
if not lease or lease < 1 or lease > 86400000 or lease % 1 ~= 0 then return {-9, now, 3} end
if not not_after or not_after < 0 or not_after > 9007199254740991 or not_after % 1 ~= 0 then
  return {-9, now, 4}
end
if not channel or #channel == 0 then return {-9, now, 5} end
if verb ~= "PUBLISH" and verb ~= "SPUBLISH" then return {-9, now, 6} end
if line_first ~= "1" and line_first ~= "0" then return {-9, now, 7} end
if hears ~= "1" and hears ~= "0" then return {-9, now, 8} end

local fields = redis.pcall("HLEN", lock)
if type(fields) == "table" then
  local kind = redis.call("TYPE", lock).ok
  if kind == "hash" or kind == "none" then
    return {err = string.format("%s (HLEN)", fields.err)}
  end
  return {-3, now}
end
if fields == 0 then return {0, now} end

local function release()
  redis.call("HDEL", lock, from)
  -- With more fields the lock is not free.
  return pass_on(lock, fields == 1 and line, channel, verb)
end

-- A reservation is no hold.
local function has(field)
  local count = redis.call("HGET", lock, field)
  return count and count ~= "0"
end

local has_from = has(from)
local has_to = (fields > 1 or not has_from) and has(to)
if not has_from and not has_to then return {-3, now} end
if fields > 1 and not has_to then
  -- The rest is data of another program, which must not end with our lease. A read-write lock has a
  -- time to live of its own.
  local receivers = release()
  if redis.pcall("HEXISTS", lock, "mode") ~= 0 or type(redis.pcall("PERSIST", lock)) == "table" then
    return {4, now, receivers}
  end
  return {3, now, receivers}
end
local late = now > not_after
if late and has_from then return {-1, now, release()} end
if late then return {-1, now, 0} end

local token = now
local last = redis.pcall("GET", fence)
if type(last) == "table" then
  if has_to then return {err = string.format("%s (GET)", last.err)} end
  return {2, now, release()}
end
if last then
  last = tonumber(last)
  if not last or last < 0 or last > 9007199254740990 or last % 1 ~= 0 then
    if has_to then return {-3, now} end
    return {2, now, release()}
  end
  if last >= token then token = last + 1 end
end

-- Where `to` would wait: the line is read before anything is changed.
local first, ticket, rank, has_place
if line and line_first == "1" and not has_to then
  first = redis.pcall("ZRANGE", line, 0, 0, "WITHSCORES")
  if first[1] and first[1] ~= to then
    ticket, rank, has_place = place_in(line, to, 0, now, first)
  end
end

-- The fence first: when memory is short it is the write that Redis refuses, before anything
-- changed.
redis.call("SET", fence, token)
if has_to then
  if redis.call("PTTL", lock) < lease then redis.call("PEXPIRE", lock, lease) end
  return {1, now, token}
end
redis.call("HDEL", lock, from)
if rank and reserve(lock, line, first[1], channel, verb) then
  wait_in(line, to, ticket, has_place, hears == "1")
  return {5, now, RESERVATION_MS, first[1], ticket, rank}
end
-- The key is absent, so this changes nothing. It shows that PEXPIRE is not refused below, where it
-- would leave a key without a time to live.
if type(redis.pcall("PEXPIRE", lock, ARGV[3])) == "table" then return {2, now, release()} end
if type(redis.pcall("HSET", lock, to, "1")) == "table" then return {2, now, release()} end
redis.call("PEXPIRE", lock, ARGV[3])
return {1, now, token}
