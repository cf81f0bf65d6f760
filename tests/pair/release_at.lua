--[[
  Gives up a place now, and frees it at a given time. Until then "<field>:kept" has it.

  KEYS[1]  lock     hash: hold field -> hold count, "<hold field>:ends" -> server time in ms
  ARGV[1]  field    "<client uuid>:<hold id>"
  ARGV[2]  free_at  server time in us before which nobody else may have the place
  ARGV[3]  most_ms  how long it is kept at most, should the server's clock have been set
  ARGV[4]  channel  where it is announced
  ARGV[5]  verb     PUBLISH or SPUBLISH

  Returns {code, time in us, ...}
    {2, time, receivers}  given up and published; the place is taken until free_at; receivers -1 when publishing was
                          refused, 0 when all this had been done before
    {1, time, receivers}  freed and published: the time was over
    {0, time}             there is no such place
]]
local lock, field, channel, verb = KEYS[1], ARGV[1], ARGV[4], ARGV[5]
local kept = field .. ":kept"
local clock = redis.call("TIME")
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
local now_ms = math.floor(now / 1000)

local ends = tonumber(redis.call("HGET", lock, field .. ":ends"))
if not ends or ends <= now_ms then
  if redis.call("HEXISTS", lock, kept) == 1 then return {2, now, 0} end
  return {0, now}
end

local rest = math.floor((tonumber(ARGV[2]) - now + 999) / 1000)
if rest > tonumber(ARGV[3]) then rest = tonumber(ARGV[3]) end
if rest > 0 then
  -- There are no such fields, so this changes nothing. It shows that HDEL is not refused below, and
  -- Redis lets the HSET after it pass when memory is short.
  redis.call("HDEL", lock, kept, kept .. ":ends")
  if redis.call("PTTL", lock) < rest then redis.call("PEXPIRE", lock, rest) end
  redis.call("HSET", lock, kept, "0", kept .. ":ends", now_ms + rest)
end
redis.call("HDEL", lock, field, field .. ":ends")
local receivers = redis.pcall(verb, channel, "0")
if type(receivers) == "table" then receivers = -1 end
if rest > 0 then return {2, now, receivers} end
return {1, now, receivers}
