--[[
  Takes the lock, picks up what is reserved for this hold, or waits in the line; or sets the hold
  count of a hold that already has the lock.

  KEYS[1]  lock       hash: hold field -> hold count; a count of 0 is a reservation
  KEYS[2]  fence      string: the last fencing token of this slot
  KEYS[3]  line       sorted set: hold field -> ticket; may be left out
  ARGV[1]  field      "<client uuid>:<hold id>"
  ARGV[2]  count      1 takes a free lock; 2 and more need a hold that has it
  ARGV[3]  lease_ms   time to live, never shortened; decimal digits, as Redis reads them
  ARGV[4]  not_after  server time in us after which nothing is granted
  ARGV[5]  mode       "try" does not wait; "first" and "again" wait. A lock that is free is granted
                      to "try" and "first", which must have no place; with "again" it goes to the
                      first in line, and without a line's key to nobody
  ARGV[6]  ticket     of the waiter; 0 if it has none
  ARGV[7]  hears      1 if it hears the messages of the channel, else 0
  ARGV[8]  channel    where a reservation is announced; needed for "again" with a line
  ARGV[9]  verb       PUBLISH or SPUBLISH; needed for "again" with a line

  Returns {code, time in us, ...}
    {1, time, token}         granted or counted; token 0 when count is not 1
    {0, time, pttl, holder}  held by another, or reserved for it; pttl -1: without a time to live
    {0, time, pttl, holder, ticket, rank}
                             the same to somebody who waits and has named the line; rank is the
                             number of places with lower tickets
    {-1, time}               late: nothing done
    {-2, time}               count >= 2 and the key is gone
    {-3, time}               count >= 2 and another hold has the key, or it is reserved
    {-4, time, what}         conflict: 1 not a hash, 2 several fields, 4 read-write lock,
                             5 fence counter not a number, 6 line not a sorted set, 10 latch,
                             11 semaphore
    {-5, time}               "again" without the line's key, and the lock is not this hold's
    {-9, time, n}            ARGV[n] not allowed

  After an error nothing is changed but the fence, with two exceptions. If Redis refuses HSET, the
  first in line may have lost its place. If it refuses PEXPIRE, a reservation for this hold may have
  become a hold, which ends when the reservation would have.
]]
local lock, fence, line = KEYS[1], KEYS[2], KEYS[3]
local field, lease_text, mode, channel, verb = ARGV[1], ARGV[3], ARGV[5], ARGV[8], ARGV[9]
local count, lease, not_after = tonumber(ARGV[2]), tonumber(lease_text), tonumber(ARGV[4])
local ticket, hears = tonumber(ARGV[6]), ARGV[7]

local clock = redis.call("TIME")
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
-- In several/reentrant.lua this is a text: Redis 7.0 takes long to write a number out, and there it
-- is done once for all operations.
local now_text = now
-- include reentrant/body/acquire.lua
