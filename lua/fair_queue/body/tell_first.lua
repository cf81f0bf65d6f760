-- Who is told that the lock may be free, once queue.lua is there.
--
-- Uses first_in_queue, server_ms

-- Tells the first in the queue that the lock may be free. Returns how many clients received the
-- message; -1: Redis refused to publish it.
local function tell_first(channel, verb)
  local first = first_in_queue(server_ms())
  if not first then return 0 end
  local receivers = redis.pcall(verb, string.format("%s:%s", channel, first), "0")
  if type(receivers) == "table" then return -1 end
  return receivers
end
