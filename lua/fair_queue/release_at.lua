--[[
  Gives up a hold now, and frees the lock at a given time. Until then a field stands in the place of
  the hold that is nobody's: "<field>:kept". Removes nothing but the field of the hold.

  KEYS[1]  lock       hash: hold field -> hold count
  KEYS[2]  queue      list: the places of those who wait; the first goes next
  KEYS[3]  deadlines  sorted set: place -> server time in ms until which it counts
  ARGV[1]  field      "<client uuid>:<hold id>"
  ARGV[2]  free_at    server time in us before which nobody else may have the lock
  ARGV[3]  most_ms    time to live that is left at most, should the server's clock have been set
  ARGV[4]  channel    behind which, and a colon, each place has a channel of its own
  ARGV[5]  verb       PUBLISH or SPUBLISH

  Returns {code, time in us, ...}
    {2, time, receivers}  given up, and the first told; the lock is taken until free_at; receivers -1
                          when publishing was refused, 0 when all this had been done before
    {1, time, receivers}  freed, and the first told: the time was over
    {3, time, receivers}  given up, but the hash has other fields: they stay, without a time to live
    {4, time, receivers}  the same, but they keep the time to live: they are a read-write lock, or
                          Redis refused HEXISTS or PERSIST
    {0, time}             the key is gone
    {-3, time}            another hold has the key
    {-9, time, n}         ARGV[n] not allowed
]]
local lock, queue, deadlines = KEYS[1], KEYS[2], KEYS[3]
-- include fair_queue/body/queue.lua
-- include fair_queue/body/tell_first.lua
-- include fair_queue/body/pass_on.lua

-- include reentrant/body/release_at.lua
