--[[
  Runs acquires and releases of different locks one after the other, as if each had come by itself.

  KEYS[key]    lock       of each operation, after the keys of the one before
  KEYS[key+1]  fence      of an acquire
  ARGV[i]      operation  acquire or release, for each
  ARGV[i+1]    …          the four arguments of its own script, from here
  ARGV[i+2]
  ARGV[i+3]
  ARGV[i+4]               to here

  Returns {n1, ..., n2, ...}
    for each operation how many parts its own script would have returned, and those parts; or only the words of its error
]]
-- Globals are slower.
local redis, tonumber, type = redis, tonumber, type

local clock = redis.call("TIME")
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
local now_text = string.format("%.0f", now)

local function acquire(lock, fence, field, count, lease, not_after)
  -- acquire.lua
end

local function release(lock, field, count, channel, verb)
  -- release.lua
end

-- Redis takes about as long to put a table into its reply as to run a command: there is one for all.
local answer, last, key = {}, 0, 1
for i = 1, #ARGV, 5 do
  local done, reply
  if ARGV[i] == "acquire" then
    done, reply = pcall(acquire, KEYS[key], KEYS[key + 1], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4])
    key = key + 2
  else
    done, reply = pcall(release, KEYS[key], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4])
    key = key + 1
  end
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
