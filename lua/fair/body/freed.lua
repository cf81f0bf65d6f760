-- What becomes of a lock that a script has freed, once pass_on.lua is there.
--
-- Uses pass_to_next, unmark, BEHIND_ALL

-- Passes a lock on that the script has taken from `given_up`: to the next in line, or, if there is
-- no line or Redis refused that, with the message `0` to everybody who listens. Returns how many
-- clients received the message; -1: Redis refused to publish it.
local function pass_on(lock, line, channel, verb, given_up)
  unmark(given_up)
  local receivers
  if line then
    local _
    _, receivers = pass_to_next(lock, line, channel, verb, BEHIND_ALL)
  end
  if not receivers then receivers = redis.pcall(verb, channel, "0") end
  if type(receivers) == "table" then return -1 end
  return receivers
end
