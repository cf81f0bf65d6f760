--[[
  Runs acquires and releases of different locks one after the other, as if each had come by itself.
  What each does is in reentrant/body/. reentrant/acquire.lua and release.lua explain the replies.

  KEYS[key]    lock      of each operation, after the keys of the one before
  KEYS[key+1]  fence     of an acquire
  ARGV[1]      marks     a letter for each operation: a acquire, r release, with what follows here;
                         A and R with all four arguments of its own
  ARGV[2]      count     of acquires
  ARGV[3]      lease_ms  of acquires
  ARGV[4]      not_after of acquires
  ARGV[5]      count     of releases
  ARGV[6]      verb      of releases
  ARGV[arg]    …         for each operation what its own script is told, in its order, without those, from here
  ARGV[arg+1]            to here if it is a release,
  ARGV[arg+2]
  ARGV[arg+3]            or to here if it has all of them

  Returns {time in us, head1, ..., head2, ...}
    for each operation four times the code that its own script would have returned, and how many parts after code and time, in
    one number, and those parts; or only the words of its error
]]
-- Globals are slower.
local redis, tonumber, type, pcall, string = redis, tonumber, type, pcall, string
local KEYS, ARGV = KEYS, ARGV

local clock = redis.call("TIME")
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
local now_text = string.format("%.0f", now)

local function acquire(lock, fence, field, count, lease, lease_text, not_after)
  -- include reentrant/body/acquire.lua
end

local function release(lock, field, count, channel, verb)
  -- include reentrant/body/release.lua
end

-- Reading a number takes longer than passing it on.
local marks, lease_text, verb = ARGV[1], ARGV[3], ARGV[6]
local acquires, lease, not_after = tonumber(ARGV[2]), tonumber(lease_text), tonumber(ARGV[4])
local releases = tonumber(ARGV[5])

-- Redis takes about as long to convert a table of its reply as to run a command, so the reply is
-- one table for all operations.
local answer, last, key, arg = {now}, 1, 1, 7
for at = 1, #marks do
  local mark = string.byte(marks, at)
  local done, reply
  if mark == 97 then -- a
    done, reply =
      pcall(acquire, KEYS[key], KEYS[key + 1], ARGV[arg], acquires, lease, lease_text, not_after)
    key, arg = key + 2, arg + 1
  elseif mark == 114 then -- r
    done, reply = pcall(release, KEYS[key], ARGV[arg], releases, ARGV[arg + 1], verb)
    key, arg = key + 1, arg + 2
  elseif mark == 65 then -- A
    done, reply =
      pcall(acquire, KEYS[key], KEYS[key + 1], ARGV[arg], tonumber(ARGV[arg + 1]), tonumber(ARGV[arg + 2]),
        ARGV[arg + 2], tonumber(ARGV[arg + 3]))
    key, arg = key + 2, arg + 4
  else
    done, reply =
      pcall(release, KEYS[key], ARGV[arg], tonumber(ARGV[arg + 1]), ARGV[arg + 2], ARGV[arg + 3])
    key, arg = key + 1, arg + 4
  end
  local code = done and reply[1]
  last = last + 1
  if code then
    local third, fourth = reply[3], reply[4]
    answer[last] = code * 4 + (fourth and 2 or third and 1 or 0)
    if third then
      last = last + 1
      answer[last] = third
    end
    if fourth then
      last = last + 1
      answer[last] = fourth
    end
  else
    -- The error of one operation does not end the others. A body may return it as `{err = ...}`.
    -- If it was raised, `pcall` gives such a table since Redis 7, and a text before.
    answer[last] = type(reply) == "table" and reply.err or reply
  end
end
return answer
