-- What becomes of a read-write lock that is free or left to readers, once reserve_readers.lua is there.
--
-- Uses RESERVATION_MS, reserve_readers

-- Reserves the lock for those who go next, and announces that to them: readers, or the first in line
-- if that is a writer and the lock is free (`mode` is false). Returns how many clients received the
-- message, or nil if nobody goes next or Redis refused a command.
local function pass_on(lock, line, base, channel, verb, mode, all)
  -- Of a free lock this changes nothing. It shows that PEXPIRE is not refused below: a key without
  -- a time to live would never be free.
  if not mode and type(redis.pcall("PEXPIRE", lock, RESERVATION_MS)) == "table" then return nil end
  local receivers, first = reserve_readers(lock, line, base, channel, verb, all)
  if mode or not first then return receivers end

  receivers = redis.pcall(verb, channel, first)
  if type(receivers) == "table" then return nil end
  -- Before the reservation: whoever has the lock and stays first would get it again and again.
  if type(redis.pcall("ZREM", line, first)) == "table" then return nil end
  if type(redis.pcall("HSET", lock, "mode", "write", first, "0")) == "table" then return nil end
  redis.call("PEXPIRE", lock, RESERVATION_MS)
  return receivers
end
