--[[
  Gives up whatever a hold id may have left: a hold, and the place of its waiter unless that still
  waits. It may be repeated at will.

  KEYS[1]  lock       hash: hold field -> hold count
  KEYS[2]  queue      list: the places of those who wait; the first goes next
  KEYS[3]  deadlines  sorted set: place -> server time in ms until which it counts
  ARGV[1]  field      "<client uuid>:<hold id>"
  ARGV[2]  count      0
  ARGV[3]  channel    behind which, and a colon, each place has a channel of its own
  ARGV[4]  verb       PUBLISH or SPUBLISH
  ARGV[5]  place      "<client uuid>:<number>:place", or nothing: no place is given up

  Returns {code, time in us, ...}
    {1, time, receivers}  freed, and the first told; receivers -1 when publishing was refused
    {3, time, receivers}  given up, but the hash has other fields: they stay, without a time to live
    {4, time, receivers}  the same, but they keep the time to live: they are a read-write lock, or
                          Redis refused HEXISTS or PERSIST
    {0, time}             the key was gone; the first was told
    {2, time}             only with another count, which is not sent
    {-3, time}            another hold has the key
    {-9, time, n}         ARGV[n] not allowed
]]
local lock, queue, deadlines = KEYS[1], KEYS[2], KEYS[3]
local field, count, channel, verb = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]
local place = ARGV[5]

local clock = redis.call("TIME")
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
-- include fair_queue/body/queue.lua
-- include fair_queue/body/tell_first.lua
-- include reentrant/body/given_arguments.lua
if not place then return {-9, now, 5} end
-- Without a place there is nothing to remove.
leave_queue(place)
-- include fair_queue/body/give_up.lua
