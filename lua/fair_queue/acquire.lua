--[[
  Takes the lock if nobody goes first, or waits in Redisson's queue; or sets the hold count of a hold
  that already has the lock.

  KEYS[1]  lock       hash: hold field -> hold count
  KEYS[2]  fence      string: the last fencing token of this slot
  KEYS[3]  queue      list: the places of those who wait; the first goes next
  KEYS[4]  deadlines  sorted set: place -> server time in ms until which it counts
  ARGV[1]  field      "<client uuid>:<hold id>"
  ARGV[2]  count      1 takes a free lock; 2 and more need a hold that has it
  ARGV[3]  lease_ms   time to live, never shortened; decimal digits, as Redis reads them
  ARGV[4]  not_after  server time in us after which nothing is granted
  ARGV[5]  mode       "try" takes no place; "wait" does, or stays in the one that it has
  ARGV[6]  place      "<client uuid>:<number>:place"; the same for all attempts of a waiter
  ARGV[7]  channel    behind which, and a colon, each place has a channel of its own
  ARGV[8]  verb       PUBLISH or SPUBLISH

  Returns {code, time in us, ...}
    {1, time, token}         granted or counted; token 0 when count is not 1
    {0, time, pttl, holder}  to a try: held by another; or it is the turn of another, whose place
                             counts for so long
    {0, time, pttl, holder, 1, rank}
                             the same to somebody who waits; rank is the number of places before it
    {-1, time}               late: nothing done
    {-2, time}               count >= 2 and the key is gone
    {-3, time}               count >= 2 and another hold has the key
    {-4, time, what}         conflict: 1 not a hash, 2 several fields, 4 read-write lock, 5 fence
                             counter not a number, 10 latch, 11 semaphore, 15 queue not a list, or
                             deadlines not a sorted set
    {-9, time, n}            ARGV[n] not allowed

  Of a free lock the first in the queue is told, unless it is the one that asks. After an error
  nothing is granted. The fence may be higher, and places whose deadlines had passed may be gone.
]]
local lock, fence, queue, deadlines = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local field, lease_text, mode = ARGV[1], ARGV[3], ARGV[5]
local place, channel, verb = ARGV[6], ARGV[7], ARGV[8]
local count, lease, not_after = tonumber(ARGV[2]), tonumber(lease_text), tonumber(ARGV[4])

local clock = redis.call("TIME")
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
local now_text = now
if not field or #field == 0 then return {-9, now, 1} end
if not count or count < 1 or count > 65535 or count % 1 ~= 0 then return {-9, now, 2} end
if not lease or lease < 1 or lease > 86400000 or lease % 1 ~= 0 then return {-9, now, 3} end
if not not_after or not_after < 0 or not_after > 9007199254740991 or not_after % 1 ~= 0 then
  return {-9, now, 4}
end
if mode ~= "try" and mode ~= "wait" then return {-9, now, 5} end
if not place or #place == 0 then return {-9, now, 6} end
if not channel or #channel == 0 then return {-9, now, 7} end
if verb ~= "PUBLISH" and verb ~= "SPUBLISH" then return {-9, now, 8} end
-- include reentrant/body/look.lua

-- include fair_queue/body/queue.lua

-- What a place of Redisson takes off all deadlines when it is granted or leaves, unless its caller
-- waits for another time.
local REDISSONS_MS = 300000

-- Takes a place at the end, or stays, and sets its deadline: those of Redisson before it will take
-- theirs off. Returns how many are before it, or an error.
local function stand_in_queue()
  local places = redis.call("LRANGE", queue, 0, -1)
  local rank, added = 0, OURS_MS
  while rank < #places and places[rank + 1] ~= place do
    rank = rank + 1
    if not is_ours(places[rank]) then added = added + REDISSONS_MS end
  end
  -- Before the place, because Redisson's scripts stop at one without a deadline.
  redis.call("ZADD", deadlines, server_ms() + added, place)
  if rank == #places then
    local pushed = redis.pcall("RPUSH", queue, place)
    if type(pushed) == "table" then
      redis.call("ZREM", deadlines, place)
      return nil, pushed
    end
  end
  return rank
end

if not mine then
  local list, set = redis.call("TYPE", queue).ok, redis.call("TYPE", deadlines).ok
  if list ~= "list" and list ~= "none" or set ~= "zset" and set ~= "none" then
    return {-4, now, 15}
  end
  if not holder then
    local now_ms = server_ms()
    local first, deadline, refused = first_in_queue(now_ms, place)
    if refused then return refused end
    if first and first ~= place then
      redis.pcall(verb, string.format("%s:%s", channel, first), "0")
      holder, left = first, deadline - now_ms
    end
  end
  if holder then
    if mode == "try" then return {0, now, left, holder} end
    local rank, refused = stand_in_queue()
    if refused then return refused end
    return {0, now, left, holder, 1, rank}
  end
end

local line, passes_on = nil, nil
local function grant()
-- include reentrant/body/grant.lua
end

local answer = grant()
if answer[1] == 1 then leave_queue(place) end
return answer
