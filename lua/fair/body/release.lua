-- Gives up one hold, or sets its hold count, once release.lua or undo.lua has read the arguments.
--
-- Uses lock, line, field, count, channel, verb, pass_to_next, BEHIND_ALL, unmark

-- include reentrant/body/given_arguments.lua
-- Who gives something up is there.
if count == 0 then unmark(field) end
-- include reentrant/body/give_up.lua

-- A free lock goes to the next in line, whoever asks.
local receivers = nil
if line and fields <= 1 then
  local _
  _, receivers = pass_to_next(lock, line, channel, verb, BEHIND_ALL)
end
-- include reentrant/body/given_up.lua
