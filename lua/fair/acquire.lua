--[[
  Takes the lock if nobody goes first, picks up what is reserved for this hold, or waits in the
  line; or sets the hold count of a hold that already has the lock.

  KEYS[1]  lock       hash: hold field -> hold count; a count of 0 is a reservation
  KEYS[2]  fence      string: the last fencing token of this slot
  KEYS[3]  line       sorted set: hold field -> ticket; may be left out with the marks: then nothing
                      is granted but what is reserved
  KEYS[4]  marks      set: client uuids that have not been heard of since the lock was reserved for
                      them
  ARGV[1]  field      "<client uuid>:<hold id>"
  ARGV[2]  count      1 takes a free lock; 2 and more need a hold that has it
  ARGV[3]  lease_ms   time to live, never shortened; decimal digits, as Redis reads them
  ARGV[4]  not_after  server time in us after which nothing is granted
  ARGV[5]  mode       "try" does not wait; "first" and "again" wait. All let those in line go
                      first
  ARGV[6]  ticket     of the waiter; 0 if it has none
  ARGV[7]  hears      1 if it hears the messages of the channel, else 0. "first" takes a place in
                      any case: its client subscribes, and then tries again
  ARGV[8]  channel    where a reservation is announced; needed with a line, unless count is 2 or
                      more
  ARGV[9]  verb       PUBLISH or SPUBLISH; the same
  ARGV[9+i] other     fields of other waiters of the client, which have places

  Returns {code, time in us, ...}
    {1, time, token}         granted or counted; token 0 when count is not 1
    {0, time, pttl, holder}  to a try: held by another, or reserved for it; pttl -1: without a time
                             to live
    {0, time, pttl, holder, ticket, rank, 0}
                             the same to somebody who waits; rank is the number of places with
                             lower tickets. Behind that, the other waiters that have no place any
                             more
    {-1, time}               late: nothing done
    {-2, time}               count >= 2 and the key is gone
    {-3, time}               count >= 2 and another hold has the key, or it is reserved
    {-4, time, what}         conflict: 1 not a hash, 2 several fields, 4 read-write lock,
                             5 fence counter not a number, 6 line not a sorted set, 10 latch,
                             11 semaphore
    {-5, time}               without the line's key, and the lock is not this hold's
    {-9, time, n}            ARGV[n] not allowed

  A pttl of 0: more places of clients that are gone are in front than one script removes, so that
  the lock is free. After an error nothing is granted. The fence may be higher, those that go first
  may have lost their places, and a reservation for this hold may have become a hold, which ends
  when the reservation would have.
]]
local lock, fence, line, marks = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local field, lease_text, mode, channel, verb = ARGV[1], ARGV[3], ARGV[5], ARGV[8], ARGV[9]
local count, lease, not_after = tonumber(ARGV[2]), tonumber(lease_text), tonumber(ARGV[4])
local ticket, hears = tonumber(ARGV[6]), ARGV[7]

local clock = redis.call("TIME")
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
local now_text = now
-- include reentrant/body/arguments.lua
if line and count == 1 then
  if not channel or #channel == 0 then return {-9, now, 8} end
  if verb ~= "PUBLISH" and verb ~= "SPUBLISH" then return {-9, now, 9} end
end
-- include reentrant/body/look.lua

-- include reentrant/body/reserve.lua
-- include reentrant/body/wait.lua
-- include fair/body/pass_on.lua

local has_place = nil
if not holder then
  unmark(field)
else
  -- Who asks is there, but that does not show that it picks up what is reserved for another waiter
  -- of it.
  local for_other = redis.call("HGET", lock, holder) == "0"
  if not for_other or client_of(holder) ~= client_of(field) then unmark(field) end
end

if not mine then
  if not line then return {-5, now} end
  local kind = redis.call("TYPE", line).ok
  if kind ~= "zset" and kind ~= "none" then return {-4, now, 6} end
  if mode == "try" then
    if not holder and kind == "zset" then
      local next, _, _, rest = pass_to_next(lock, line, channel, verb, BEHIND_ALL)
      holder, left = next or rest, next and RESERVATION_MS or 0
    end
    if holder then return {0, now, left, holder} end
  elseif holder or kind == "zset" then
    local rank
    ticket, rank, has_place = place_in(line, field, ticket, now)
    if not holder then
      -- If Redis refuses the reservation, the lock is free, and nobody else asks for it.
      local next, _, gone, rest = pass_to_next(lock, line, channel, verb, ticket)
      holder, left, rank = next or rest, next and RESERVATION_MS or 0, rank - gone
    end
    if holder then
      wait_in(line, field, ticket, has_place, hears == "1" or mode == "first")
      if redis.call("TYPE", marks).ok == "set" then redis.call("PEXPIRE", marks, MARKS_MS) end
      local answer = {0, now, left, holder, ticket, rank, 0}
      for i = 1, #ARGV - 9 do
        local other = ARGV[9 + i]
        if other ~= holder and not redis.call("ZSCORE", line, other) then
          answer[#answer + 1] = other
        end
      end
      return answer
    end
  end
end

local passes_on = has_place
-- include reentrant/body/grant.lua
