--[[
  Gives up a hold now, and lets others have its name at a given time. Until then, in the place of a
  writer stands a field that is nobody's, "<hold field>:kept:write"; a reader's own field stays, and
  its timeout key lives for so long. Repeating it changes nothing.

  KEYS[1]  lock     hash: mode -> "read" or "write", hold field -> reads, "<hold field>:write" ->
                    writes; a count of 0 is a reservation
  KEYS[2]  timeout  string "<base>:<hold field>:rwlock_timeout:1"; may be left out with the line by a
                    writer, which has none
  KEYS[3]  line     sorted set: hold field of a reader, "<hold field>:write" of a writer -> ticket;
                    if it is left out, a freed lock is announced to everybody
  ARGV[1]  field    "<client uuid>:<hold id>"
  ARGV[2]  free_at  server time in us before which nobody else may have what the hold had
  ARGV[3]  most_ms  time to live that is left at most, should the server's clock have been set
  ARGV[4]  channel  where it is announced, so that waiters hear of the new time to live
  ARGV[5]  verb     PUBLISH or SPUBLISH
  ARGV[6]  base     "{<name>}", or the name if it contains a brace

  Returns {code, time in us, ...}
    {2, time, receivers}  given up; what the hold had is taken until free_at; receivers -1 when
                          publishing was refused, 0 when others have the lock for longer, or when
                          all this had been done before by a writer
    {1, time, receivers}  given up and passed on: the time was over, or the hold was an upgrade, and
                          its owner goes on reading; receivers 0 when others go on reading
    {0, time}             the key is gone
    {-3, time}            others have the key, or it is reserved, or it is no read-write lock
    {-9, time, n}         ARGV[n] not allowed
]]
local lock, timeout, line = KEYS[1], KEYS[2], KEYS[3]
local field, channel, verb, base = ARGV[1], ARGV[4], ARGV[5], ARGV[6]
local free_at, most = tonumber(ARGV[2]), tonumber(ARGV[3])

local clock = redis.call("TIME")
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
if not field or #field == 0 then return {-9, now, 1} end
if not free_at or free_at < 0 or free_at > 9007199254740991 or free_at % 1 ~= 0 then
  return {-9, now, 2}
end
if not most or most < 1 or most > 86400000 or most % 1 ~= 0 then return {-9, now, 3} end
if not channel or #channel == 0 then return {-9, now, 4} end
if verb ~= "PUBLISH" and verb ~= "SPUBLISH" then return {-9, now, 5} end
if not base or #base == 0 then return {-9, now, 6} end

-- include read_write/body/look.lua

if not held then return {0, now} end
local kept = string.format("%s:kept:write", field)
if not reading and not writing then
  if is_ours and redis.call("HGET", lock, kept) then return {2, now, 0} end
  return {-3, now}
end

local rest = math.floor((free_at - now + 999) / 1000)
if rest > most then rest = most end
-- Besides the mode and what the hold has.
local others = redis.call("HLEN", lock) - 1
if mine_r then others = others - 1 end
if mine_w then others = others - 1 end
if rest > 0 and (others == 0 or not writing) then
  if writing then
    -- There is no such field, so this changes nothing. It shows that HDEL is not refused below. It
    -- also is the first write, and not HSET: Redis refuses that one as the first when memory is
    -- short.
    redis.call("HDEL", lock, kept)
    -- From here on the key lives for the rest, whatever is refused.
    redis.call("PEXPIRE", lock, rest)
    redis.call("HSET", lock, kept, "0")
    redis.call("HDEL", lock, field, wfield)
    if timeout then redis.pcall("DEL", timeout) end
  else
    local left = redis.call("PTTL", lock)
    -- SET as the first write would be refused when memory is short.
    if redis.call("PEXPIRE", timeout, rest) == 0 then
      redis.call("SET", timeout, "1", "PX", rest)
    end
    -- Of those who read beside it nobody is shortened.
    if others == 0 or left >= 0 and left < rest then redis.call("PEXPIRE", lock, rest) end
  end
  local receivers = 0
  if others == 0 then receivers = redis.pcall(verb, channel, writing and "1" or "0") end
  if type(receivers) == "table" then receivers = -1 end
  return {2, now, receivers}
end

-- include read_write/body/give_up.lua
-- include read_write/body/go_next.lua
-- include read_write/body/announce.lua
return {1, now, receivers}
