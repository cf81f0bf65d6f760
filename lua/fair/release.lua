--[[
  Gives up a hold, a reservation or a place in the line, and passes a free lock on; or sets a hold
  count to a smaller number. Of the lock it removes nothing but the field of the hold. It may be
  repeated at will.

  KEYS[1]  lock     hash: hold field -> hold count; a count of 0 is a reservation
  KEYS[2]  line     sorted set: hold field -> ticket; may be left out with the marks: then a freed
                    lock is announced to everybody, and no place is given up
  KEYS[3]  marks    set: client uuids that have not been heard of since the lock was reserved for
                    them
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
    {0, time}             the key was gone; with count 0 the lock was passed on to the next in line
    {-3, time}            another hold has the key, or, if the count is not 0, it is reserved
    {-9, time, n}         ARGV[n] not allowed
]]
local lock, line, marks = KEYS[1], KEYS[2], KEYS[3]
local field, count, channel, verb = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]

local clock = redis.call("TIME")
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
-- include reentrant/body/reserve.lua
-- include fair/body/pass_on.lua

-- include fair/body/release.lua
