--[[
  Runs acquires and releases of different locks one after the other, as if each had come by itself.

  KEYS[key]    lock       of each operation, after the keys of the one before
  KEYS[key+1]  fence      of an acquire
  ARGV[5i-4]   operation  acquire or release
  ARGV[5i-3]   …          the four arguments of its own script, from here
  ARGV[5i-2]
  ARGV[5i-1]
  ARGV[5i]                to here

  Returns {n1, ..., n2, ...}
    for each operation how many parts its own script would have returned, and those parts; or only the words of its error
]]
-- Globals are slower.
local redis, tonumber, type = redis, tonumber, type

local clock = redis.call("TIME")
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])

local function acquire(KEYS, ARGV)
  -- acquire.lua
end

local function release(KEYS, ARGV)
  -- release.lua
end

-- Redis takes about as long to put a table into its reply as to run a command: there is one for all.
local answer, last, key = {}, 0, 1
local keys, args = {}, {}
for i = 1, #ARGV / 5 do
  local run = release
  keys[1] = KEYS[key]
  if ARGV[5 * i - 4] == "acquire" then
    run = acquire
    keys[2] = KEYS[key + 1]
    key = key + 1
  end
  key = key + 1
  args[1], args[2], args[3], args[4] = ARGV[5 * i - 3], ARGV[5 * i - 2], ARGV[5 * i - 1], ARGV[5 * i]
  local done, reply = pcall(run, keys, args)
  last = last + 1
  if not done or reply.err then
    -- An error of one ends that one alone. What it says is a table since Redis 7, and a text before.
    answer[last] = type(reply) == "table" and reply.err or reply
  else
    answer[last] = #reply
    for part = 1, #reply do answer[last + part] = reply[part] end
    last = last + #reply
  end
end
return answer
