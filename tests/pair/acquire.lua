--[[
  Takes one of the two places of a lock that two may hold at once, or sets the hold count of a place.

  KEYS[1]  lock       hash: hold field -> hold count, "<hold field>:ends" -> server time in ms
  KEYS[2]  fence      string: the token that was given out last
  ARGV[1]  field      "<client uuid>:<hold id>"
  ARGV[2]  count      1 takes a place; 2 and more set the count of a place that is there
  ARGV[3]  lease      time to live in ms
  ARGV[4]  not_after  server time in us after which nothing is done

  Returns {code, time in us, ...}
    {1, time, token}         the field has a place; the token is 0 for a count of 2 and more
    {0, time, ms, holder}    both places are taken: when the first of them ends, and who has one of them
    {-1, time}               late: nothing done
    {-2, time}               there is no such place
    {-4, time, 5}            the fence is as large as a number can be
]]
local lock, fence, field = KEYS[1], KEYS[2], ARGV[1]
local count, lease, not_after = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])

local clock = redis.call("TIME")
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
if now > not_after then return {-1, now} end

local now_ms = math.floor(now / 1000)
local places, own, first, holder, last, over = 0, false, false, "", 0, {}
local all = redis.call("HGETALL", lock)
for i = 1, #all, 2 do
  local ends = tonumber(redis.call("HGET", lock, all[i] .. ":ends"))
  if ends and ends <= now_ms then
    over[#over + 1] = all[i]
  elseif ends then
    places = places + 1
    if ends > last then last = ends end
    if all[i] == field then
      own = ends
    else
      if not first or ends < first then first = ends end
      if holder == "" then holder = all[i] end
    end
  end
end
if count > 1 and not own then return {-2, now} end
if not own and places >= 2 then return {0, now, first - now_ms, holder} end

local token = 0
if count == 1 then
  token = now
  local before = tonumber(redis.call("GET", fence))
  if before and before > 9007199254740990 then return {-4, now, 5} end
  if before and before >= token then token = before + 1 end
  redis.call("SET", fence, token)
end
local ends = now_ms + lease
if own and own > ends then ends = own end
if ends > last then last = ends end
-- Redis may refuse a command: what makes the key longer comes before the place, and once more for a
-- key that is new.
redis.call("PEXPIRE", lock, last - now_ms)
for i = 1, #over do redis.call("HDEL", lock, over[i], over[i] .. ":ends") end
redis.call("HSET", lock, field, count, field .. ":ends", ends)
redis.call("PEXPIRE", lock, last - now_ms)
return {1, now, token}
