-- The queue of Redisson: a list of places, and until when each of them counts. Who waits in this
-- crate sets that anew with each attempt.
--
-- Uses queue, deadlines

-- How long a place of this crate counts after an attempt of its waiter.
local OURS_MS = 15000

local function is_ours(place)
  return string.match(place, ":place$")
end

local function server_ms()
  local clock = redis.call("TIME")
  return tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)
end

-- The first in the queue, and its deadline. Whose deadline has passed loses its place, unless it is
-- `own`. Third, the error if Redis has refused that.
local function first_in_queue(now_ms, own)
  local places = redis.pcall("LRANGE", queue, 0, -1)
  if places.err then return nil, nil, places end
  for i = 1, #places do
    local first = places[i]
    if first == own then return first end
    local deadline = redis.pcall("ZSCORE", deadlines, first)
    if type(deadline) == "table" then return nil, nil, deadline end
    if deadline and tonumber(deadline) > now_ms then return first, tonumber(deadline) end
    -- The list first: Redisson's scripts stop at a place without a deadline.
    local gone = redis.pcall("LPOP", queue)
    if type(gone) == "table" then return nil, nil, gone end
    redis.pcall("ZREM", deadlines, first)
  end
end

-- Removes a place of this crate, and takes off the deadlines what it has added to them. Redisson adds
-- each deadline to that of the place before, so these are its places up to the next one of ours. If
-- Redis refuses that, the place counts until its deadline.
local function leave_queue(place)
  local places = redis.pcall("LRANGE", queue, 0, -1)
  local removed = redis.pcall("LREM", queue, 0, place)
  if type(removed) == "table" then return end
  redis.pcall("ZREM", deadlines, place)
  local is_behind = false
  for i = 1, #places do
    if is_ours(places[i]) then
      is_behind = places[i] == place
    elseif is_behind and type(redis.pcall("ZSCORE", deadlines, places[i])) == "string" then
      redis.pcall("ZINCRBY", deadlines, -OURS_MS, places[i])
    end
  end
end
