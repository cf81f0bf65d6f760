--[[
  Gives up a hold, a reservation or a place in the line, and passes a free lock on; or sets a hold
  to fewer reads and writes. Of the lock it removes nothing but the fields of the hold. It may be
  repeated at will.

  KEYS[1]  lock     hash: mode -> "read" or "write", hold field -> reads, "<hold field>:write" ->
                    writes; a count of 0 is a reservation
  KEYS[2]  timeout  string "<base>:<hold field>:rwlock_timeout:1"; may be left out with the line,
                    as for a writer, which has none
  KEYS[3]  line     sorted set: hold field of a reader, "<hold field>:write" of a writer -> ticket;
                    if it is left out, a freed lock is announced to everybody
  ARGV[1]  field    "<client uuid>:<hold id>"
  ARGV[2]  reads    no reads and no writes end the hold, whatever its counts
  ARGV[3]  writes   0 with reads only for a hold that does not write: a downgrade is another script
  ARGV[4]  channel  where a freed lock is announced
  ARGV[5]  verb     PUBLISH or SPUBLISH
  ARGV[6]  base     "{<name>}", or the name if it contains a brace

  Returns {code, time in us, ...}
    {1, time, receivers}  given up, and published if that lets others have the lock; receivers -1
                          when publishing was refused, 0 when others go on reading
    {2, time}             counts set, time to live untouched
    {0, time}             the hold was gone; if all of it was to end, the lock was passed on
    {-3, time}            the hold is to keep what it does not have, or the key is no read-write
                          lock
    {-9, time, n}         ARGV[n] not allowed
]]
local lock, timeout, line = KEYS[1], KEYS[2], KEYS[3]
local field, channel, verb, base = ARGV[1], ARGV[4], ARGV[5], ARGV[6]
local reads, writes = tonumber(ARGV[2]), tonumber(ARGV[3])

local clock = redis.call("TIME")
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
if not field or #field == 0 then return {-9, now, 1} end
if not reads or reads < 0 or reads > 65535 or reads % 1 ~= 0 then return {-9, now, 2} end
if not writes or writes < 0 or writes > 65535 or writes % 1 ~= 0 then return {-9, now, 3} end
if not channel or #channel == 0 then return {-9, now, 4} end
if verb ~= "PUBLISH" and verb ~= "SPUBLISH" then return {-9, now, 5} end
if not base or #base == 0 then return {-9, now, 6} end

-- include read_write/body/look.lua

if reads + writes > 0 then
  if not held then return {0, now} end
  if writes > 0 and not writing then return {-3, now} end
  if writes == 0 and (writing or not reading) then return {-3, now} end
  if writes > 0 then redis.call("HSET", lock, wfield, writes) end
  if reads > 0 and reading then redis.call("HSET", lock, field, reads) end
  if reads == 0 and reading then
    redis.call("HDEL", lock, field)
    if timeout then redis.pcall("DEL", timeout) end
  end
  return {2, now}
end

local is_own = mine_r or mine_w
if is_own then
  -- include read_write/body/give_up.lua
else
  if timeout then redis.pcall("DEL", timeout) end
  if line then
    -- Leaves the line.
    local left = redis.pcall("ZREM", line, field, wfield)
    if type(left) == "table" and redis.call("TYPE", line).ok == "zset" then
      return {err = string.format("%s (ZREM)", left.err)}
    end
  end
  if held == "other" then return {-3, now} end
end
-- include read_write/body/go_next.lua
if not is_own then return {0, now} end
-- include read_write/body/announce.lua
return {1, now, receivers}
