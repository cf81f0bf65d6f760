--[[
  Takes a place away from one particular hold, and tells its client.

  KEYS[1]  lock            hash: hold field -> hold count, "<hold field>:ends" -> server time in ms
  ARGV[1]  expected        field that must have the place
  ARGV[2]  not_after       server time in us after which nothing is done
  ARGV[3]  channel         where a free place is announced
  ARGV[4]  verb            PUBLISH or SPUBLISH
  ARGV[5]  client_channel  where the holder's client hears the name

  Returns {code, time in us, ...}
    {1, time, receivers}  freed and published; receivers -1 when publishing was refused
    {-1, time}            late: nothing done
    {-3, time}            there is no such place
]]
local lock, expected = KEYS[1], ARGV[1]
local clock = redis.call("TIME")
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
if now > tonumber(ARGV[2]) then return {-1, now} end
if redis.call("HDEL", lock, expected, expected .. ":ends") == 0 then return {-3, now} end
local receivers = redis.pcall(ARGV[4], ARGV[3], "0")
local told = redis.pcall("PUBLISH", ARGV[5], lock)
if type(receivers) == "table" or type(told) == "table" then receivers = -1 end
return {1, now, receivers}
