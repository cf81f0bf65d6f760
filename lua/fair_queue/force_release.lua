--[[
  Takes the lock away from one particular hold, tells its client, and tells the first in Redisson's
  queue. Of the lock it removes nothing but the field of the hold.

  KEYS[1]  lock            hash: hold field -> hold count
  KEYS[2]  queue           list: the places of those who wait; the first goes next
  KEYS[3]  deadlines       sorted set: place -> server time in ms until which it counts
  ARGV[1]  expected        field that must have the key, so that a late call cannot hit a stranger
  ARGV[2]  not_after       server time in us after which nothing is done
  ARGV[3]  channel         behind which, and a colon, each place has a channel of its own
  ARGV[4]  verb            PUBLISH or SPUBLISH
  ARGV[5]  client_channel  where the holder's client hears the name

  Returns {code, time in us, ...}
    {1, time, receivers}  freed, and the first told; receivers -1 when publishing was refused
    {3, time, receivers}  the same, but the hash has other fields: they stay, without a time to live
    {4, time, receivers}  the same, but they keep the time to live: Redis refused PERSIST
    {0, time}             the key is gone
    {-1, time}            late: nothing done
    {-3, time}            another hold or value has the key, or it is a read-write lock
    {-9, time, n}         ARGV[n] not allowed
]]
local lock, queue, deadlines = KEYS[1], KEYS[2], KEYS[3]
-- include fair_queue/body/queue.lua
-- include fair_queue/body/tell_first.lua
-- include fair_queue/body/pass_on.lua

-- include reentrant/body/force_release.lua
