--[[
  Gives up a hold, or sets its hold count to a smaller number. Removes
  nothing but the field of the hold.

  KEYS[1]  lock     hash: hold field -> hold count
  ARGV[1]  field    "<client uuid>:<hold id>"
  ARGV[2]  count    0 frees the lock, whatever its count; 1 and more sets the count
  ARGV[3]  channel  where a freed lock is announced
  ARGV[4]  verb     PUBLISH or SPUBLISH

  Returns {code, time in us, ...}
    {1, time, receivers}  freed and published; receivers -1 when publishing was refused
    {2, time}             count set, time to live untouched
    {3, time, receivers}  freed and published, but the hash has other fields: they stay, without a
                          time to live
    {4, time, receivers}  the same, but they keep the time to live: they are a read-write lock, or
                          Redis refused HEXISTS or PERSIST
    {0, time}             the key is gone
    {-3, time}            another hold has the key
    {-9, time, n}         ARGV[n] not allowed
]]
local lock = KEYS[1]
local field, count, channel, verb = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]

local clock = redis.call("TIME")
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
-- include reentrant/body/release.lua
