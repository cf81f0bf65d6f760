--[[
  Runs acquires and releases of different locks one after the other, as if each had come by itself.

  KEYS[key]    lock       of each operation, after the keys of the one before
  KEYS[key+1]  fence      of an acquire
  ARGV[5i-4]   operation  acquire or release
  ARGV[5i-3]   …          the four arguments of its own script, from here
  ARGV[5i-2]
  ARGV[5i-1]
  ARGV[5i]                to here

  Returns {reply1, reply2, ...}
    for each operation what its own script would have returned, or the words of its error
]]
local clock = redis.call("TIME")
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])

local function acquire(KEYS, ARGV)
  -- acquire.lua
end

local function release(KEYS, ARGV)
  -- release.lua
end

local answer = {}
local key = 1
for i = 1, #ARGV / 5 do
  local keys, run = {KEYS[key]}, release
  if ARGV[5 * i - 4] == "acquire" then keys, run = {KEYS[key], KEYS[key + 1]}, acquire end
  key = key + #keys
  -- An error of one ends that one alone. What it says is a table since Redis 7, and a text before.
  local done, reply = pcall(run, keys, {ARGV[5 * i - 3], ARGV[5 * i - 2], ARGV[5 * i - 1], ARGV[5 * i]})
  if not done and type(reply) ~= "table" then reply = {err = reply} end
  answer[#answer + 1] = reply.err or reply
end
return answer
