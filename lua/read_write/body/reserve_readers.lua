-- What readers get of a read-write lock that somebody has given up.

-- How long a lock stays reserved for those who wait.
local RESERVATION_MS = 1500

-- Takes a reader out of the line and reserves the lock for it. It counts as alive for as long as its
-- timeout key is there, which is written before the field. False if Redis refused a command.
local function reserve_read(lock, line, place, base)
  if type(redis.pcall("ZREM", line, place)) == "table" then return false end
  local timeout = string.format("%s:%s:rwlock_timeout:1", base, place)
  if redis.pcall("SET", timeout, "1", "PX", RESERVATION_MS).err then return false end
  return type(redis.pcall("HSET", lock, "mode", "read", place, "0")) ~= "table"
end

-- Reserves a lock that nobody writes for readers who wait, and announces that to them in one message:
-- after a writer (`all`) for all readers among the first 1,000 places, otherwise for those before the
-- first writer. Returns how many clients received the message, or nil if there is no such reader or
-- Redis refused a command; who lost a place then comes back with its ticket. If there is none, also
-- returns the first place.
local function reserve_readers(lock, line, base, channel, verb, all)
  local places = redis.pcall("ZRANGE", line, 0, 999)
  local readers, count, message = {}, 0, nil
  for i = 1, #places do
    local place = places[i]
    -- The place of a writer ends with the "e" of ":write", that of a reader with a digit.
    if string.byte(place, #place) ~= 101 then
      count = count + 1
      readers[count] = place
      if message then message = string.format("%s %s", message, place) else message = place end
    elseif not all then
      break
    end
  end
  if not message then return nil, places[1] end

  -- A reservation must not end what others have without an end.
  local left = redis.pcall("PTTL", lock)
  if type(left) == "table" or left == -1 then return nil end
  local receivers = redis.pcall(verb, channel, message)
  if type(receivers) == "table" then return nil end
  for i = 1, count do
    if not reserve_read(lock, line, readers[i], base) then return nil end
  end
  if left < RESERVATION_MS then redis.pcall("PEXPIRE", lock, RESERVATION_MS) end
  return receivers
end
