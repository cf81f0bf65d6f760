--[[
  Runs acquires and releases of different locks one after the other, as if each had come by itself.

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

local clock = redis.call("TIME")
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
local now_text = string.format("%.0f", now)

local function acquire(lock, fence, field, count, lease, lease_text, not_after)
  -- acquire.lua
end

local function release(lock, field, count, channel, verb)
  -- release.lua
end

-- Reading a number takes longer than passing it on.
local marks, lease_text, verb = ARGV[1], ARGV[3], ARGV[6]
local acquires, lease, not_after = tonumber(ARGV[2]), tonumber(lease_text), tonumber(ARGV[4])
local releases = tonumber(ARGV[5])

-- Redis takes about as long to put a table into its reply as to run a command: there is one for all.
local answer, last, key, arg = {now}, 1, 1, 7
for at = 1, #marks do
  local mark = string.byte(marks, at)
  local done, code, _, third, fourth
  if mark == 97 then -- a
    done, code, _, third, fourth =
      pcall(acquire, KEYS[key], KEYS[key + 1], ARGV[arg], acquires, lease, lease_text, not_after)
    key, arg = key + 2, arg + 1
  elseif mark == 114 then -- r
    done, code, _, third, fourth = pcall(release, KEYS[key], ARGV[arg], releases, ARGV[arg + 1], verb)
    key, arg = key + 1, arg + 2
  elseif mark == 65 then -- A
    done, code, _, third, fourth =
      pcall(acquire, KEYS[key], KEYS[key + 1], ARGV[arg], tonumber(ARGV[arg + 1]), tonumber(ARGV[arg + 2]),
        ARGV[arg + 2], tonumber(ARGV[arg + 3]))
    key, arg = key + 2, arg + 4
  else
    done, code, _, third, fourth =
      pcall(release, KEYS[key], ARGV[arg], tonumber(ARGV[arg + 1]), ARGV[arg + 2], ARGV[arg + 3])
    key, arg = key + 1, arg + 4
  end
  if not done or type(code) == "table" then
    -- An error of one ends that one alone. What it says is a table since Redis 7, and a text before.
    last = last + 1
    answer[last] = type(code) == "table" and code.err or code
  else
    local parts = fourth and 2 or third and 1 or 0
    answer[last + 1], answer[last + 2], answer[last + 3] = code * 4 + parts, third, fourth
    last = last + 1 + parts
  end
end
return answer
