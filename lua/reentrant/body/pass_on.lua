-- What becomes of a lock that a script has freed or found free.

-- How long a lock stays reserved for the first in line.
local RESERVATION_MS = 1500

-- Reserves a free lock for the first in line, and announces that. Returns how many clients received
-- the message, or nil if Redis refused a command: then the lock is still free.
local function reserve(lock, line, first, channel, verb)
  local receivers = redis.pcall(verb, channel, first)
  if type(receivers) == "table" then return nil end
  -- The key is absent, so this changes nothing. It shows that PEXPIRE is not refused below: a key
  -- without a time to live would never be free.
  if type(redis.pcall("PEXPIRE", lock, RESERVATION_MS)) == "table" then return nil end
  if type(redis.pcall("HSET", lock, first, "0")) == "table" then return nil end
  redis.pcall("PEXPIRE", lock, RESERVATION_MS)
  redis.pcall("ZREM", line, first)
  return receivers
end

-- Passes a lock on that the script has freed: to the first in line, or, if there is no line, with
-- the message `0` to everybody who listens. Returns how many clients received the message; -1: Redis
-- refused to publish it.
local function pass_on(lock, line, channel, verb)
  local first = line and redis.pcall("ZRANGE", line, 0, 0)[1]
  local receivers = first and reserve(lock, line, first, channel, verb)
    or redis.pcall(verb, channel, "0")
  if type(receivers) == "table" then return -1 end
  return receivers
end
