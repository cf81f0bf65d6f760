--[[
  Takes a read or the write lock, picks up what is reserved for this hold, or waits in the line; or
  sets the counts of a hold that already has the lock.

  KEYS[1]   lock       hash: mode -> "read" or "write", hold field -> reads, "<hold field>:write" ->
                       writes; a count of 0 is a reservation
  KEYS[2]   timeout    string "<base>:<hold field>:rwlock_timeout:1": the reader is alive while it
                       is there; and so is a writer that waits
  KEYS[3]   fence      string: the last fencing token of this slot
  KEYS[4]   line       sorted set: hold field of a reader, "<hold field>:write" of a writer ->
                       ticket; may be left out: then nobody waits in it, and with "again" nothing
                       is granted but what is reserved
  KEYS[#KEYS - told + i]
            timeout    of the reader ARGV[12+i], behind the others
  ARGV[1]   field      "<client uuid>:<hold id>"
  ARGV[2]   reads      1 and no writes takes a read lock
  ARGV[3]   writes     1 and no reads takes the write lock. More needs a hold that has it, and any
                       write a hold that writes
  ARGV[4]   lease_ms   time to live, never shortened; decimal digits, as Redis reads them
  ARGV[5]   not_after  server time in us after which nothing is granted
  ARGV[6]   mode       "try" does not wait; "first" and "again" wait. A lock that is free is granted
                       to "try" and "first", which must have no place; with "again" it goes to the
                       first in line
  ARGV[7]   ticket     of the waiter; 0 if it has none
  ARGV[8]   hears      1 if it hears the messages of the channel, else 0
  ARGV[9]   channel    where a reservation is announced
  ARGV[10]  verb       PUBLISH or SPUBLISH
  ARGV[11]  base       "{<name>}", or the name if it contains a brace
  ARGV[12]  told       how many readers the writer was told about
  ARGV[12+i]
            reader     the hold field of each. It is removed if it is dead

  Returns {code, time in us, ...}
    {1, time, token}         granted or counted; token 0 when only counts were set
    {0, time, pttl, holder}  to a try, or without the line's key: held by another, or reserved for
                             it
    {0, time, pttl, holder, ticket, rank, ...}
                             the same to somebody who waits; rank is the number of places with lower
                             tickets. To a writer behind readers, then 1 if this call has removed a
                             reader that was dead, else 0, and up to 16 readers; a writer without a
                             place has the ticket 0
    {-1, time}               late: nothing done
    {-2, time}               the hold is to have more than it had, and is gone
    {-3, time}               the hold is there, and is not to have this: a write without a write, or
                             reads alone beside a write
    {-4, time, what}         conflict: 1 not a hash, 3 no time to live, 5 fence counter no number,
                             6 line not a sorted set, 7 another hash, 10 a count-down latch, 11 a
                             semaphore, 12 a lock
    {-5, time}               "again" without the line's key, and the hold neither has the lock nor
                             is it reserved for it
    {-9, time, n}            ARGV[n] not allowed; 12 also if keys or readers are not as many

  After an error nothing is changed but the fence and the timeout key, with the exceptions that the
  acquire of the reentrant lock has.
]]
local lock, timeout, fence = KEYS[1], KEYS[2], KEYS[3]
local field, lease_text, mode, hears = ARGV[1], ARGV[4], ARGV[6], ARGV[8]
local channel, verb, base = ARGV[9], ARGV[10], ARGV[11]
local reads, writes, lease = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(lease_text)
local not_after, ticket, told = tonumber(ARGV[5]), tonumber(ARGV[7]), tonumber(ARGV[12])

local clock = redis.call("TIME")
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
if not field or #field == 0 then return {-9, now, 1} end
if not reads or reads < 0 or reads > 65535 or reads % 1 ~= 0 then return {-9, now, 2} end
if not writes or writes < 0 or writes > 65535 or writes % 1 ~= 0 then return {-9, now, 3} end
if reads + writes == 0 then return {-9, now, 3} end
if not lease or lease < 1 or lease > 86400000 or lease % 1 ~= 0 then return {-9, now, 4} end
if not not_after or not_after < 0 or not_after > 9007199254740991 or not_after % 1 ~= 0 then
  return {-9, now, 5}
end
if mode ~= "first" and mode ~= "try" and mode ~= "again" then return {-9, now, 6} end
if not ticket or ticket < 0 or ticket > 9007199254740991 or ticket % 1 ~= 0 then
  return {-9, now, 7}
end
if hears ~= "1" and hears ~= "0" then return {-9, now, 8} end
if not channel or #channel == 0 then return {-9, now, 9} end
if verb ~= "PUBLISH" and verb ~= "SPUBLISH" then return {-9, now, 10} end
if not base or #base == 0 then return {-9, now, 11} end
if not told or #ARGV ~= 12 + told then return {-9, now, 12} end
if #KEYS ~= 3 + told and #KEYS ~= 4 + told then return {-9, now, 12} end
if now > not_after then return {-1, now} end

local line = #KEYS == 4 + told and KEYS[4]
local wfield = string.format("%s:write", field)
local pttl = redis.call("PTTL", lock)
local held, mine_r, mine_w = false, false, false
if pttl ~= -2 then
  held = redis.pcall("HGET", lock, "mode")
  if type(held) == "table" then
    if held.err and redis.call("TYPE", lock).ok == "hash" then
      return {err = string.format("%s (HGET)", held.err)}
    end
    return {-4, now, 1}
  end
  if held ~= "read" and held ~= "write" then
    -- include read_write/body/other_hash.lua
    return {-4, now, other_hash(lock)}
  end
  mine_r, mine_w = redis.call("HGET", lock, field), redis.call("HGET", lock, wfield)
end
-- A reservation is no hold.
local reading, writing = mine_r and mine_r ~= "0", mine_w and mine_w ~= "0"

local function keep_timeout()
  if redis.call("PTTL", timeout) < lease then redis.call("SET", timeout, "1", "PX", lease_text) end
end

-- include read_write/body/next_token.lua

-- A re-entry, or the first attempt once more.
if reading or writing or reads + writes > 1 then
  if pttl == -2 then return {-2, now} end
  if not reading and not writing then return {-3, now} end
  if (writes > 0) ~= (writing and true or false) then return {-3, now} end
  -- A reader whose timeout key is gone has been given up by others, or may be at any moment.
  if not writing and redis.call("EXISTS", timeout) == 0 then return {-2, now} end
  local token = 0
  if reads + writes == 1 then
    local failure
    token, failure = next_token(fence, now)
    if failure then return failure end
    redis.call("SET", fence, token)
    if reading then keep_timeout() end
  else
    if reads > 0 then
      keep_timeout()
      redis.call("HSET", lock, field, reads)
    end
    if writes > 0 then redis.call("HSET", lock, wfield, writes) end
  end
  if pttl >= 0 and pttl < lease then redis.call("PEXPIRE", lock, lease_text) end
  return {1, now, token}
end
-- A lease would shorten what others have without an end.
if pttl == -1 then return {-4, now, 3} end

local is_writer = writes == 1
local place = is_writer and wfield or field
local reserved = is_writer and mine_w == "0" or not is_writer and mine_r == "0"
-- Nobody knows who would go first.
if mode == "again" and not reserved and not line then return {-5, now} end

-- A writer removes dead readers that it was told about. What is left of a lock without holds is its
-- mode.
local removed = 0
if is_writer and held == "read" then
  local fields = redis.call("HLEN", lock)
  for i = 1, told do
    local reader = ARGV[12 + i]
    if redis.call("EXISTS", KEYS[#KEYS - told + i]) == 0 and reader ~= "mode" then
      removed = removed + redis.call("HDEL", lock, reader)
    end
  end
  if fields - removed == 1 then
    redis.call("HDEL", lock, "mode")
    held, pttl = false, -2
  end
end

-- Readers go beside readers, unless somebody stands before them. A lock that is free goes to the
-- first in line, unless this is a first attempt.
local waits = held and not reserved and (is_writer or held == "write")
local looks = not reserved and (held == "read" and not is_writer or not held and mode == "again")
local has_place
if waits or line and looks and redis.call("EXISTS", line) == 1 then
  local kind = line and redis.call("TYPE", line).ok or "none"
  if kind ~= "zset" and kind ~= "none" then return {-4, now, 6} end

  -- Included here, because Lua takes time to make functions, and most locks are free.
  -- include read_write/body/reserve_readers.lua
  -- include read_write/body/pass_on.lua

  -- How long the line lives after the last attempt of somebody who waits.
  local LINE_MS = 12000

  -- Finds out where a waiter stands. Returns the ticket of its place; if it has none, the ticket
  -- that it names, or a new one behind everybody in line. Then whether it has a place. Only reads.
  local function place_in(line, place, ticket, now)
    local mine = redis.call("ZSCORE", line, place)
    if mine then return tonumber(mine), true end
    if ticket > 0 then return ticket, false end
    local last = tonumber(redis.call("ZRANGE", line, -1, -1, "WITHSCORES")[2])
    if last and last >= now then return last + 1, false end
    return now, false
  end

  -- Whether somebody has a place before this ticket.
  local function is_behind(line, ticket)
    local first = redis.call("ZRANGE", line, 0, 0, "WITHSCORES")[2]
    return first and tonumber(first) < ticket
  end

  -- Readers of a lock that others read do not wait for a writer whose client may be dead: takes
  -- writers from the front of the line that were not heard of for as long as a line lives. If they
  -- are alive, they come back with their tickets. Returns whether there were any.
  local function drop_silent(line, base)
    local dropped = false
    for _ = 1, 64 do
      local first = redis.call("ZRANGE", line, 0, 0)[1]
      local field = first and string.match(first, "^(.*):write$")
      if not field then return dropped end
      local heard = redis.pcall("EXISTS", string.format("%s:%s:rwlock_timeout:1", base, field))
      if heard ~= 0 or redis.pcall("ZREM", line, first) ~= 1 then return dropped end
      dropped = true
    end
    return dropped
  end

  -- A waiter that hears the messages of the channel enters the line; any other leaves it. If Redis
  -- refuses that, the waiter goes without a place, or keeps the one that it has. Of a writer the
  -- timeout key says that it was heard of.
  local function wait_in(line, place, ticket, has_place, hears, timeout)
    if not hears then
      if has_place then redis.pcall("ZREM", line, place) end
      return
    end
    if timeout and redis.pcall("SET", timeout, "1", "PX", LINE_MS).err then return end
    -- Before the place is taken, so that no line without a time to live is made.
    local is_there = redis.pcall("PEXPIRE", line, LINE_MS)
    if has_place or type(is_there) == "table" then return end
    redis.pcall("ZADD", line, string.format("%.0f", ticket), place)
    if is_there == 0 then redis.call("PEXPIRE", line, LINE_MS) end
  end

  -- include read_write/body/holds_of.lua

  if line then ticket, has_place = place_in(line, place, ticket, now) end
  local dropped = looks and held and drop_silent(line, base)
  if dropped or looks and is_behind(line, ticket) then
    pass_on(lock, line, base, channel, verb, held, false)
    held, pttl = redis.call("HGET", lock, "mode"), redis.call("PTTL", lock)
    -- This includes a reader for which it was reserved just now.
    local may_join = held == "read" and not is_writer and not is_behind(line, ticket)
    waits = held and not may_join
  end
  if waits then
    local holds, rank = holds_of(lock), 0
    local is_told = is_writer and held == "read"
    if mode == "try" or not line then
      if not is_told then return {0, now, pttl, holds[1] or ""} end
      ticket = 0
    else
      rank = redis.call("ZCOUNT", line, "-inf", string.format("(%.0f", ticket))
      wait_in(line, place, ticket, has_place, hears == "1", is_writer and timeout)
    end
    local answer = {0, now}
    answer[3], answer[4], answer[5], answer[6] = pttl, holds[1] or "", ticket, rank
    if is_told then
      answer[7] = removed > 0 and 1 or 0
      for i = 1, #holds do
        answer[7 + i] = holds[i]
      end
    end
    return answer
  end
end

local token, failure = next_token(fence, now)
if failure then return failure end

-- The fence first: when memory is short it is the write that Redis refuses, before anything
-- changed.
redis.call("SET", fence, token)
-- If the key is absent, this changes nothing. It shows that PEXPIRE is not refused below: a key
-- without a time to live could not be taken back if HDEL is refused as well.
if pttl < lease then redis.call("PEXPIRE", lock, lease_text) end
if is_writer then
  redis.call("HSET", lock, "mode", "write", wfield, "1")
else
  -- Before the field: a reader without it counts as dead. Exactly the lease.
  redis.call("SET", timeout, "1", "PX", lease_text)
  redis.call("HSET", lock, "mode", "read", field, "1")
end
-- The time to live of a reservation must not lengthen a lease.
if not held or reserved and redis.call("HLEN", lock) == 2 then
  redis.call("PEXPIRE", lock, lease_text)
end
if mode == "again" then
  if line then redis.pcall("ZREM", line, place) end
  -- It said that the writer waits.
  if is_writer then redis.pcall("DEL", timeout) end
end
return {1, now, token}
