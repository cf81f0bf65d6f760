--[[
  Gives up all permits of a hold: as many are free as were there. It may be repeated at will.

  KEYS[1]  lock     string: how many permits are free, once their number was set
  KEYS[2]  permits  sorted set: "<hold field>:<number>" -> the permit's end in ms
  ARGV[1]  field    "<client uuid>:<hold id>:<want>:<own>"
  ARGV[2]  channel  where it is announced how many are free
  ARGV[3]  verb     PUBLISH or SPUBLISH

  Returns {code, time in us, ...}
    {1, time, receivers}  given up; receivers -1 when publishing was refused
    {0, time}             the hold had no permits
    {-3, time}            the permits' key has a value of another type
    {-9, time, n}         ARGV[n] not allowed
]]
-- include semaphore/body/permits.lua
-- include permit_expirable/body/free.lua
-- include permit_expirable/body/give_back.lua

local lock, permits = KEYS[1], KEYS[2]
local field, channel, verb = ARGV[1], ARGV[2], ARGV[3]

local clock = redis.call("TIME")
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
local want = wants(field)
if not want then return {-9, now, 1} end
if not channel or #channel == 0 then return {-9, now, 2} end
if verb ~= "PUBLISH" and verb ~= "SPUBLISH" then return {-9, now, 3} end

local there, free = give_back(lock, permits, field, want, now)
if type(there) == "table" then return there end
if there == 0 then return {0, now} end
local receivers = redis.pcall(verb, channel, free)
if type(receivers) == "table" then receivers = -1 end
return {1, now, receivers}
