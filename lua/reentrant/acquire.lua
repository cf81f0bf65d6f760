--[[
  Takes the lock, or sets the hold count of a hold that already has it.

  KEYS[1]  lock       hash: hold field -> hold count
  KEYS[2]  fence      string: the last fencing token of this slot
  ARGV[1]  field      "<client uuid>:<hold id>"
  ARGV[2]  count      1 takes a free lock; 2 and more need a hold that has it
  ARGV[3]  lease_ms   time to live, never shortened; decimal digits, as Redis reads them
  ARGV[4]  not_after  server time in us after which nothing is granted

  Returns {code, time in us, ...}
    {1, time, token}         granted or counted; token 0 when count is not 1
    {0, time, pttl, holder}  held by another; pttl -1: without a time to live
    {-1, time}               late: nothing done
    {-2, time}               count >= 2 and the key is gone
    {-3, time}               count >= 2 and another hold has the key
    {-4, time, what}         conflict: 1 not a hash, 2 several fields, 4 read-write lock,
                             5 fence counter not a number
    {-9, time, n}            ARGV[n] not allowed
]]
local lock, fence = KEYS[1], KEYS[2]
local field, lease_text = ARGV[1], ARGV[3]
local count, lease, not_after = tonumber(ARGV[2]), tonumber(lease_text), tonumber(ARGV[4])

local clock = redis.call("TIME")
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
-- In several/reentrant.lua this is a text: Redis 7.0 takes long to write a number out, and there it
-- is done once for all operations.
local now_text = now
-- include reentrant/body/acquire.lua
