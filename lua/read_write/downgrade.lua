--[[
  Makes a hold that writes one that only reads, with no writer in between, and passes the lock on to
  all readers that wait. Repeating it changes nothing.

  KEYS[1]  lock      hash: mode -> "read" or "write", hold field -> reads, "<hold field>:write" ->
                     writes; a count of 0 is a reservation
  KEYS[2]  timeout   string "<base>:<hold field>:rwlock_timeout:1"
  KEYS[3]  line      sorted set: hold field of a reader, "<hold field>:write" of a writer -> ticket;
                     if it is left out, the lock is announced to everybody
  ARGV[1]  field     "<client uuid>:<hold id>"
  ARGV[2]  reads     that are left
  ARGV[3]  lease_ms  of the reads; they last at least as long as the lock would have
  ARGV[4]  channel   where the lock is announced
  ARGV[5]  verb      PUBLISH or SPUBLISH
  ARGV[6]  base      "{<name>}", or the name if it contains a brace

  Returns {code, time in us, ...}
    {1, time, receivers}  downgraded and published; receivers -1 when publishing was refused
    {2, time}             it was downgraded before: reads set, nothing published
    {0, time}             the hold is gone
    {-3, time}            others have the key, or it is no read-write lock
    {-9, time, n}         ARGV[n] not allowed
]]
-- include read_write/body/reserve_readers.lua

local lock, timeout, line = KEYS[1], KEYS[2], KEYS[3]
local field, lease_text, channel, verb, base = ARGV[1], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local reads, lease = tonumber(ARGV[2]), tonumber(lease_text)

local clock = redis.call("TIME")
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
if not field or #field == 0 then return {-9, now, 1} end
if not reads or reads < 1 or reads > 65535 or reads % 1 ~= 0 then return {-9, now, 2} end
if not lease or lease < 1 or lease > 86400000 or lease % 1 ~= 0 then return {-9, now, 3} end
if not channel or #channel == 0 then return {-9, now, 4} end
if verb ~= "PUBLISH" and verb ~= "SPUBLISH" then return {-9, now, 5} end
if not base or #base == 0 then return {-9, now, 6} end

local wfield = string.format("%s:write", field)
local mine_w = redis.pcall("HGET", lock, wfield)
if type(mine_w) == "table" then
  local kind = redis.call("TYPE", lock).ok
  if kind == "hash" or kind == "none" then
    return {err = string.format("%s (HGET)", mine_w.err)}
  end
  return {-3, now}
end
if not mine_w or mine_w == "0" then
  local mine_r = redis.call("HGET", lock, field)
  if not mine_r or mine_r == "0" then
    if redis.call("EXISTS", lock) == 0 then return {0, now} end
    return {-3, now}
  end
  redis.call("HSET", lock, field, reads)
  return {2, now}
end

-- There is no such field, so this changes nothing. It shows that HDEL is not refused below.
redis.call("HDEL", lock, "")
-- Its owner may believe in its reads for as long as the lock would have lived.
local left = redis.call("PTTL", lock)
if left < lease then left = lease end
redis.call("SET", timeout, "1", "PX", left)
redis.call("PEXPIRE", lock, left)
redis.call("HSET", lock, "mode", "read", field, reads)
redis.call("HDEL", lock, wfield)
local receivers = line and reserve_readers(lock, line, base, channel, verb, true)
if not receivers then receivers = redis.pcall(verb, channel, "1") end
if type(receivers) == "table" then receivers = -1 end
return {1, now, receivers}
