-- What becomes of a waiter that does not get the lock.

-- How long the line lives after the last attempt of somebody who waits.
local LINE_MS = 12000

-- Finds out where a waiter stands. Returns the ticket of its place; if it has none, the ticket that
-- it names, or a new one behind everybody in line. Then the number of places with lower tickets,
-- without that of `first`, if given, which is about to leave the line; and whether it has a place.
-- Only reads, so that a refused command is an error before anything is changed.
local function place_in(line, field, ticket, now, first)
  local mine = redis.call("ZSCORE", line, field)
  if mine then
    ticket = tonumber(mine)
  elseif ticket == 0 then
    local last = tonumber(redis.call("ZRANGE", line, -1, -1, "WITHSCORES")[2])
    ticket = now
    if last and last >= now then ticket = last + 1 end
  end
  local rank = redis.call("ZCOUNT", line, "-inf", string.format("(%.0f", ticket))
  if first and tonumber(first[2]) < ticket then rank = rank - 1 end
  return ticket, rank, mine
end

-- A waiter that hears the messages of the channel enters the line; any other leaves it. If Redis
-- refuses that, the waiter goes without a place, or keeps the one that it has.
local function wait_in(line, field, ticket, has_place, hears)
  if not hears then
    if has_place then redis.pcall("ZREM", line, field) end
    return
  end
  -- Before the place is taken, so that no line without a time to live is made.
  local is_there = redis.pcall("PEXPIRE", line, LINE_MS)
  if has_place or type(is_there) == "table" then return end
  redis.pcall("ZADD", line, string.format("%.0f", ticket), field)
  if is_there == 0 then redis.call("PEXPIRE", line, LINE_MS) end
end
