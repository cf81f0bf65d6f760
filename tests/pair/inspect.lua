--[[
  Tells who has a place. Reads only.

  KEYS[1]  lock  hash: hold field -> hold count, "<hold field>:ends" -> server time in ms

  Returns {code, time in us, ...}
    {0, time}                              nobody has one
    {1, time, pttl, fields, field, count}  field and count of the place that was taken first
]]
local lock = KEYS[1]
local clock = redis.call("TIME")
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
local all = redis.call("HGETALL", lock)
for i = 1, #all, 2 do
  local ends = tonumber(redis.call("HGET", lock, all[i] .. ":ends"))
  if ends and ends > math.floor(now / 1000) then
    return {1, now, redis.call("PTTL", lock), #all / 2, all[i], all[i + 1]}
  end
end
return {0, now}
