-- What becomes of a lock that a script has freed, once reserve.lua is there.
--
-- Uses reserve

-- Passes a lock on that the script has freed: to the first in line, or, if there is no line or
-- Redis refused that, with the message `0` to everybody who listens. Returns how many clients
-- received the message; -1: Redis refused to publish it.
local function pass_on(lock, line, channel, verb)
  local first = line and redis.pcall("ZRANGE", line, 0, 0)[1]
  local receivers = first and reserve(lock, line, first, channel, verb)
  if not receivers then receivers = redis.pcall(verb, channel, "0") end
  if type(receivers) == "table" then return -1 end
  return receivers
end
