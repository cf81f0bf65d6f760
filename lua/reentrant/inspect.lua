--[[
  Tells what the key of a lock holds. Reads only.

  KEYS[1]  lock  hash: hold field -> hold count

  Returns {code, time in us, ...}
    {0, time}                             the key is absent
    {1, time, pttl, fields, field, count} a hash; field and count of its only field, else "" and ""
    {2, time, pttl, type}                 something else
    {3, time, pttl}                       a read-write lock
    {6, time, pttl, what}                 another kind: 10 a latch, 11 a semaphore
]]
local lock = KEYS[1]
local clock = redis.call("TIME")
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])

local kind = redis.call("TYPE", lock).ok
if kind == "none" then return {0, now} end
local pttl = redis.call("PTTL", lock)
if kind ~= "hash" then return {2, now, pttl, kind} end

if redis.call("HEXISTS", lock, "mode") == 1 then return {3, now, pttl} end
local other = redis.call("HGET", lock, "kind")
if other == "latch" then return {6, now, pttl, 10} end
if other == "semaphore" then return {6, now, pttl, 11} end
local fields = redis.call("HLEN", lock)
if fields ~= 1 then return {1, now, pttl, fields, "", ""} end
local pair = redis.call("HGETALL", lock)
return {1, now, pttl, fields, pair[1], pair[2]}
