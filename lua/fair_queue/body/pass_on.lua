-- What becomes of a lock that a script has freed or keeps taken, once tell_first.lua is there.
--
-- Uses tell_first

-- Tells the first in the queue. Returns how many clients received the message; -1: Redis refused to
-- publish it.
local function pass_on(_, _, channel, verb)
  return tell_first(channel, verb)
end
local line = nil
