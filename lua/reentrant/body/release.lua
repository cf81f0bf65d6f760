-- Gives up one hold, or sets its hold count, once release.lua has read the arguments.
-- Included by release.lua, whose header explains arguments and replies, and by
-- several/reentrant.lua.
--
-- Uses channel, line, lock, verb

-- include reentrant/body/given_arguments.lua
-- include reentrant/body/give_up.lua

-- A free lock goes to the first in line, whoever asks. Most locks have no line.
local receivers = nil
if line and fields <= 1 and redis.pcall("EXISTS", line) ~= 0 then
  -- include reentrant/body/reserve.lua
  local first = redis.pcall("ZRANGE", line, 0, 0)[1]
  receivers = first and reserve(lock, line, first, channel, verb)
end
-- include reentrant/body/given_up.lua
