--[[
  Tells who has a read-write lock. Reads only.

  KEYS[1]  lock  hash: mode -> "read" or "write", hold field -> reads, "<hold field>:write" ->
                 writes; a count of 0 is a reservation

  Returns {code, time in us, ...}
    {0, time}  the key is absent
    {1, time, pttl, fields, field, count, mode}
               how many fields there are besides the mode; the hold field of the writer, if there is
               one, else of some reader, with its count, both "" if there is nobody; and the mode
    {2, time}  a value that is not a hash
    {6, time, pttl, what}
               another kind: 7 another hash, 10 a count-down latch, 11 a semaphore, 12 a lock
]]
-- include read_write/body/other_hash.lua
-- include read_write/body/holds_of.lua

local lock = KEYS[1]
local clock = redis.call("TIME")
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])

local kind = redis.call("TYPE", lock).ok
if kind == "none" then return {0, now} end
if kind ~= "hash" then return {2, now} end
local mode = redis.call("HGET", lock, "mode")
if mode ~= "read" and mode ~= "write" then
  return {6, now, redis.call("PTTL", lock), other_hash(lock)}
end

local holds = holds_of(lock)
local holder, count = holds[1] or "", ""
for i = 1, #holds do
  if string.match(holds[i], ":write$") then holder = holds[i] end
end
if holder ~= "" then count = redis.call("HGET", lock, holder) end
local field = string.match(holder, "^(.*):write$") or holder
return {1, now, redis.call("PTTL", lock), redis.call("HLEN", lock) - 1, field, count, mode}
