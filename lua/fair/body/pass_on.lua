-- What becomes of a free lock for which somebody may be in line, once reserve.lua is there.
--
-- Uses reserve, marks

-- How long the mark of a client lives after the last attempt of somebody who waits.
local MARKS_MS = 12000
-- So many places of marked clients are removed by one script at most.
local MOST_REMOVED = 64
-- Higher than every ticket.
local BEHIND_ALL = 9007199254740992

-- The part of a field that says which client it is of.
local function client_of(field)
  return string.match(field, "^[^:]*")
end

-- A client for which the lock was reserved is marked until it is heard of. If Redis refuses SADD, it
-- costs the others more reservations, should it be dead. PEXPIRE has just been used on the lock.
local function mark(field)
  local is_there = redis.call("PEXPIRE", marks, MARKS_MS)
  redis.pcall("SADD", marks, client_of(field))
  if is_there == 0 then redis.call("PEXPIRE", marks, MARKS_MS) end
end

local function unmark(field)
  if marks then redis.pcall("SREM", marks, client_of(field)) end
end

-- Reserves a free lock for the first of those in line whose tickets are lower than `before`. Places
-- of marked clients are removed; such a client has let a reservation run out, and comes back with
-- its tickets when it is there again.
--
-- Returns for whom the lock is reserved, if for anybody; how many clients received the last
-- message, or nil if none was sent, or an error if Redis refused it; how many places are gone; and
-- the next field in line, if the script may not remove more: then all are told to try.
local function pass_to_next(lock, line, channel, verb, before)
  for removed = 0, MOST_REMOVED do
    local first = redis.pcall("ZRANGE", line, 0, 0, "WITHSCORES")
    local field = first[1]
    if not field or tonumber(first[2]) >= before then return nil, nil, removed end
    local is_marked = redis.pcall("SISMEMBER", marks, client_of(field))
    if is_marked ~= 1 then
      local receivers = reserve(lock, line, field, channel, verb)
      if not receivers then return nil, nil, removed end
      -- It is an error if something else is under the key.
      if is_marked == 0 then mark(field) end
      return field, receivers, removed + 1
    end
    if removed == MOST_REMOVED then
      return nil, redis.pcall(verb, channel, "0"), removed, field
    end
    if type(redis.pcall("ZREM", line, field)) == "table" then return nil, nil, removed end
  end
end
