--[[
  Takes the lock away from one particular hold or reservation, tells its client, and passes the lock
  on. Of the lock it removes nothing but the field of the hold.

  KEYS[1]  lock            hash: hold field -> hold count; a count of 0 is a reservation
  KEYS[2]  line            sorted set: hold field -> ticket; may be left out with the marks
  KEYS[3]  marks           set: client uuids that have not been heard of since the lock was reserved
                           for them
  ARGV[1]  expected        field that must have the key, so that a late call cannot hit a stranger
  ARGV[2]  not_after       server time in us after which nothing is done
  ARGV[3]  channel         where a freed lock is announced
  ARGV[4]  verb            PUBLISH or SPUBLISH
  ARGV[5]  client_channel  where the holder's client hears the name

  Returns {code, time in us, ...}
    {1, time, receivers}  freed and published; receivers -1 when publishing was refused
    {3, time, receivers}  freed and published, but the hash has other fields: they stay, without a
                          time to live
    {4, time, receivers}  the same, but they keep the time to live: Redis refused PERSIST
    {0, time}             the key is gone
    {-1, time}            late: nothing done
    {-3, time}            another hold or value has the key, or it is a read-write lock
    {-9, time, n}         ARGV[n] not allowed
]]
local lock, line, marks = KEYS[1], KEYS[2], KEYS[3]
-- include reentrant/body/reserve.lua
-- include fair/body/pass_on.lua
-- include fair/body/freed.lua

-- include reentrant/body/force_release.lua
