-- What becomes of permits that are free, once permits.lua is there.
--
-- Uses wants, take, permit_of

-- How long permits stay reserved for somebody in line.
local RESERVATION_MS = 1500
-- So many permits are reserved by one script at most, and so many places given up.
local MOST_RESERVED = 1000
-- Higher than every ticket.
local BEHIND_ALL = 9007199254740992

-- Whether a place is that of a waiter that was heard of lately. If Redis does not say, it is.
local function is_heard(heard, field, now_ms)
  local ends = redis.pcall("ZSCORE", heard, permit_of(field, 1))
  return type(ends) == "table" or (ends and tonumber(ends) > now_ms)
end

-- Reserves what is free for those in line whose tickets are lower than `before`, each want whole
-- and in order, until one does not fit. Who wants more than there are, or would keep others waiting
-- and was not heard of for long, loses its place, and is told so by a message as well. Returns how
-- many permits are taken then; the field that did not fit, if one did not, or the error if Redis
-- refused something else than to publish; and how many clients received the last message, -1 if
-- Redis refused to publish it, or nothing if there was no message.
local function pass_on(permits, heard, line, number, taken, before, now_ms, channel, verb)
  local reserved, receivers = 0, nil
  for _ = 1, MOST_RESERVED do
    local first = redis.pcall("ZRANGE", line, 0, 0, "WITHSCORES")
    local field = first[1]
    if first.err then return taken, first, receivers end
    if not field or tonumber(first[2]) >= before then return taken, nil, receivers end
    local want, own = wants(field)
    local most = number or own
    local fits = want and want <= most
    if fits and reserved + want > MOST_RESERVED then return taken, field, receivers end
    if fits and taken + want > most then
      if taken >= most or is_heard(heard, field, now_ms) then return taken, field, receivers end
      fits = false
    end
    local told = redis.pcall(verb, channel, field)
    if type(told) == "table" then return taken, nil, -1 end
    receivers = told
    -- Before the reservation: whoever has permits and stays first would get them again and again.
    local removed = redis.pcall("ZREM", line, field)
    if type(removed) == "table" then return taken, removed, receivers end
    redis.pcall("ZREM", heard, permit_of(field, 1))
    if fits then
      local refused = take(permits, field, want, RESERVATION_MS, now_ms)
      if refused then return taken, refused, receivers end
      taken, reserved = taken + want, reserved + want
    end
  end
  return taken, nil, receivers
end
