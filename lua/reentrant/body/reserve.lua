-- What becomes of a free lock for which somebody is in line.

-- How long a lock stays reserved for the first in line.
local RESERVATION_MS = 1500

-- Announces to the first in line that a free lock is reserved for it, takes it out of the line and
-- reserves the lock. Returns how many clients received the message, or nil if Redis refused a
-- command: then the lock is still free. If that was HSET, the first has lost its place, and comes
-- back with its ticket.
local function reserve(lock, line, first, channel, verb)
  local receivers = redis.pcall(verb, channel, first)
  if type(receivers) == "table" then return nil end
  -- The key is absent, so this changes nothing. It shows that PEXPIRE is not refused below: a key
  -- without a time to live would never be free.
  if type(redis.pcall("PEXPIRE", lock, RESERVATION_MS)) == "table" then return nil end
  -- Before the reservation: whoever has the lock and stays first would get it again and again.
  if type(redis.pcall("ZREM", line, first)) == "table" then return nil end
  if type(redis.pcall("HSET", lock, first, "0")) == "table" then return nil end
  redis.call("PEXPIRE", lock, RESERVATION_MS)
  return receivers
end
