--[[
  Takes the lock away from one particular hold or reservation, with its reads and writes, tells its
  client, and passes the lock on. Of the lock it removes nothing but the fields of the hold.

  KEYS[1]  lock            hash: mode -> "read" or "write", hold field -> reads,
                           "<hold field>:write" -> writes; a count of 0 is a reservation
  KEYS[2]  timeout         of the expected hold: string "<base>:<hold field>:rwlock_timeout:1"; may
                           be left out with the line
  KEYS[3]  line            sorted set: hold field of a reader, "<hold field>:write" of a writer ->
                           ticket; if it is left out, a freed lock is announced to everybody
  ARGV[1]  expected        "<client uuid>:<hold id>" that must have the lock, so that a late call
                           cannot hit a stranger
  ARGV[2]  not_after       server time in us after which nothing is done
  ARGV[3]  channel         where a freed lock is announced
  ARGV[4]  verb            PUBLISH or SPUBLISH
  ARGV[5]  base            "{<name>}", or the name if it contains a brace
  ARGV[6]  client_channel  where the holder's client hears the name

  Returns {code, time in us, ...}
    {1, time, receivers}  taken away, and published if that lets others have the lock; receivers -1
                          when publishing was refused, 0 when others go on reading
    {0, time}             the key is gone
    {-1, time}            late: nothing done
    {-3, time}            others have the key, or it is no read-write lock
    {-9, time, n}         ARGV[n] not allowed
]]
local lock, timeout, line = KEYS[1], KEYS[2], KEYS[3]
local field, channel, verb, base, client_channel = ARGV[1], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local not_after = tonumber(ARGV[2])

local clock = redis.call("TIME")
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
if not field or #field == 0 then return {-9, now, 1} end
if not not_after or not_after < 0 or not_after > 9007199254740991 or not_after % 1 ~= 0 then
  return {-9, now, 2}
end
if not channel or #channel == 0 then return {-9, now, 3} end
if verb ~= "PUBLISH" and verb ~= "SPUBLISH" then return {-9, now, 4} end
if not base or #base == 0 then return {-9, now, 5} end
if not client_channel or #client_channel == 0 then return {-9, now, 6} end
if now > not_after then return {-1, now} end

-- include read_write/body/look.lua

if not held then return {0, now} end
if not mine_r and not mine_w then return {-3, now} end
-- include read_write/body/give_up.lua
-- include read_write/body/go_next.lua
-- include read_write/body/announce.lua
if type(redis.pcall("PUBLISH", client_channel, lock)) == "table" then receivers = -1 end
return {1, now, receivers}
