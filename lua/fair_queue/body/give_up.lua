-- Gives up one hold, or sets its hold count, once the arguments are known.
--
-- Uses channel, verb, tell_first

local line = nil
-- include reentrant/body/give_up.lua

local receivers = 0
if fields <= 1 then receivers = tell_first(channel, verb) end
-- include reentrant/body/given_up.lua
