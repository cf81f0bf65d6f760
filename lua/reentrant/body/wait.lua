-- What becomes of a waiter that does not get the lock.

-- How long the line lives after the last attempt of somebody who waits.
local LINE_MS = 12000

-- Returns the ticket of a place in the line, and whether the place is there. Without a place it is
-- the ticket that the waiter names, or, if it has none, a new one behind everybody in line. Returns
-- nil and a reply if the key is not a line.
local function ticket_in(line, field, ticket, now)
  local mine = redis.pcall("ZSCORE", line, field)
  if type(mine) == "table" then
    local kind = redis.call("TYPE", line).ok
    if kind == "zset" or kind == "none" then
      return nil, {err = string.format("%s (ZSCORE)", mine.err)}
    end
    return nil, {-4, now, 6}
  end
  if mine then return tonumber(mine), true end
  if ticket > 0 then return ticket, false end
  local last = tonumber(redis.call("ZRANGE", line, -1, -1, "WITHSCORES")[2])
  if last and last >= now then return last + 1, false end
  return now, false
end

-- A waiter that hears the messages of the channel enters the line; any other leaves it, and keeps
-- its ticket. Returns the ticket, and the number of places with lower tickets; nil and a reply if
-- the key is not a line. If Redis refuses to write, the waiter has no place.
local function wait(line, field, ticket, hears, now)
  local has_place
  ticket, has_place = ticket_in(line, field, ticket, now)
  if not ticket then return nil, has_place end
  local score = string.format("%.0f", ticket)
  local rank = redis.call("ZCOUNT", line, "-inf", string.format("(%s", score))
  if hears then
    -- Before the place, so that a line without a time to live is never made.
    local lives = redis.pcall("PEXPIRE", line, LINE_MS)
    if not has_place and type(lives) ~= "table" then
      redis.pcall("ZADD", line, score, field)
      if lives == 0 then redis.pcall("PEXPIRE", line, LINE_MS) end
    end
  elseif has_place then
    redis.pcall("ZREM", line, field)
  end
  return ticket, rank
end
