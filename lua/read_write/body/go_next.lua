-- Whoever goes next gets a read-write lock: after a writer all readers that wait, otherwise the first
-- in line. Afterwards `receivers` is how many clients received the message, nil if there was none.
-- Included by release.lua, release_at.lua and force_release.lua, once give_up.lua is there.
--
-- Uses lock, line, held, writing, channel, verb, base

local receivers = nil
-- Most locks have no line.
if line and held ~= "write" and redis.pcall("EXISTS", line) == 1 then
  -- include read_write/body/reserve_readers.lua
  -- include read_write/body/pass_on.lua
  receivers = pass_on(lock, line, base, channel, verb, held, writing)
end
