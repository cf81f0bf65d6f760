--[[
  Runs acquires and releases of different locks one after the other, as if each had come by itself.
  What each does is in reentrant/body/. reentrant/acquire.lua and release.lua explain the replies.

  KEYS[key]    lock      of each operation, after the keys of the one before
  KEYS[key+1]  fence     of an acquire; the last key of each operation is its line, if marks begin
                         with `+`
  ARGV[1]      marks     `+` or `-`; then a letter for each operation: a acquire, r release, with
                         what follows here; A and R with all seven or four arguments of its own
  ARGV[2]      count     of acquires
  ARGV[3]      lease_ms  of acquires
  ARGV[4]      not_after of acquires
  ARGV[5]      mode      of acquires; not `again`
  ARGV[6]      ticket    of acquires
  ARGV[7]      hears     of acquires
  ARGV[8]      count     of releases
  ARGV[9]      verb      of releases
  ARGV[arg]    …         for each operation what its own script is told, in its order, without
                         those, from here
  ARGV[arg+1]            to here if it is a release;
  ARGV[arg+2]
  ARGV[arg+3]            with all of them to here if it is a release,
  ARGV[arg+4]
  ARGV[arg+5]
  ARGV[arg+6]            or to here if it is an acquire

  Returns {time in us, head1, ..., head2, ...}
    for each operation eight times the code that its own script would have returned, and how many
    parts after code and time, in one number, and those parts; or only the words of its error
]]
-- Globals are slower.
local redis, tonumber, type, pcall, string = redis, tonumber, type, pcall, string
local KEYS, ARGV = KEYS, ARGV

local clock = redis.call("TIME")
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
local now_text = string.format("%.0f", now)

local function acquire(
  lock, fence, line, field, count, lease, lease_text, not_after, mode, ticket, hears
)
  -- Needed for `again` only.
  local channel, verb
  -- include reentrant/body/acquire.lua
end

local function release(lock, line, field, count, channel, verb)
  -- include reentrant/body/release.lua
end

-- Reading a number takes longer than passing it on.
local marks, lease_text, mode, hears, verb = ARGV[1], ARGV[3], ARGV[5], ARGV[7], ARGV[9]
local acquires, lease, not_after = tonumber(ARGV[2]), tonumber(lease_text), tonumber(ARGV[4])
local ticket, releases = tonumber(ARGV[6]), tonumber(ARGV[8])
local lines = string.byte(marks, 1) == 43

-- Redis takes about as long to convert a table of its reply as to run a command, so the reply is
-- one table for all operations.
local answer, last, key, arg = {now}, 1, 1, 10
for at = 2, #marks do
  local mark = string.byte(marks, at)
  local acquires_lock = mark == 97 or mark == 65 -- a, A
  local lock, fence = KEYS[key], acquires_lock and KEYS[key + 1]
  key = key + (acquires_lock and 2 or 1)
  local line
  if lines then
    line = KEYS[key]
    key = key + 1
  end
  local done, reply
  if mark == 97 then -- a
    done, reply = pcall(acquire, lock, fence, line, ARGV[arg], acquires, lease, lease_text,
      not_after, mode, ticket, hears)
    arg = arg + 1
  elseif mark == 114 then -- r
    done, reply = pcall(release, lock, line, ARGV[arg], releases, ARGV[arg + 1], verb)
    arg = arg + 2
  elseif acquires_lock then
    done, reply = pcall(acquire, lock, fence, line, ARGV[arg], tonumber(ARGV[arg + 1]),
      tonumber(ARGV[arg + 2]), ARGV[arg + 2], tonumber(ARGV[arg + 3]), ARGV[arg + 4],
      tonumber(ARGV[arg + 5]), ARGV[arg + 6])
    arg = arg + 7
  else
    done, reply = pcall(release, lock, line, ARGV[arg], tonumber(ARGV[arg + 1]), ARGV[arg + 2],
      ARGV[arg + 3])
    arg = arg + 4
  end
  local code = done and reply[1]
  last = last + 1
  if code then
    local parts = #reply - 2
    answer[last] = code * 8 + parts
    for part = 1, parts do
      answer[last + part] = reply[part + 2]
    end
    last = last + parts
  else
    -- The error of one operation does not end the others. A body may return it as `{err = ...}`.
    -- If it was raised, `pcall` gives such a table since Redis 7, and a text before.
    answer[last] = type(reply) == "table" and reply.err or reply
  end
end
return answer
