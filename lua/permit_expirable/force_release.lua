--[[
  Takes all permits away from one particular hold, and tells its client.

  KEYS[1]  lock            string: how many permits are free, once their number was set
  KEYS[2]  permits         sorted set: "<hold field>:<number>" -> the permit's end in ms
  ARGV[1]  expected        "<client uuid>:<hold id>:<want>:<own>"
  ARGV[2]  not_after       server time in us after which nothing is done
  ARGV[3]  channel         where it is announced how many are free
  ARGV[4]  verb            PUBLISH or SPUBLISH
  ARGV[5]  client_channel  where the holder's client hears the name

  Returns {code, time in us, ...}
    {1, time, receivers}  taken away; receivers -1 when publishing was refused
    {0, time}             the hold had no permits
    {-1, time}            late: nothing done
    {-3, time}            the permits' key has a value of another type
    {-9, time, n}         ARGV[n] not allowed
]]
-- include semaphore/body/permits.lua
-- include permit_expirable/body/free.lua
-- include permit_expirable/body/give_back.lua

local lock, permits = KEYS[1], KEYS[2]
local expected, channel, verb, client_channel = ARGV[1], ARGV[3], ARGV[4], ARGV[5]
local not_after = tonumber(ARGV[2])

local clock = redis.call("TIME")
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
local want = wants(expected)
if not want then return {-9, now, 1} end
if not not_after or not_after < 0 or not_after > 9007199254740991 or not_after % 1 ~= 0 then
  return {-9, now, 2}
end
if not channel or #channel == 0 then return {-9, now, 3} end
if verb ~= "PUBLISH" and verb ~= "SPUBLISH" then return {-9, now, 4} end
if not client_channel or #client_channel == 0 then return {-9, now, 5} end
if now > not_after then return {-1, now} end

local there, free = give_back(lock, permits, expected, want, now)
if type(there) == "table" then return there end
if there == 0 then return {0, now} end
local receivers = redis.pcall(verb, channel, free)
if type(receivers) == "table" then receivers = -1 end
if type(redis.pcall("PUBLISH", client_channel, lock)) == "table" then receivers = -1 end
return {1, now, receivers}
