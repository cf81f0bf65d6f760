--[[
  Renews places.

  KEYS[i]      lock       hash: hold field -> hold count, "<hold field>:ends" -> server time in ms
  ARGV[1]      not_after  server time in us after which nothing is done
  ARGV[2i]     field      "<client uuid>:<hold id>" of KEYS[i]
  ARGV[2i+1]   lease      time to live in ms; never shortens

  Returns {code, time in us, ...}
    {1, time, r1, r2, ...}  for each key 1: renewed; 0: there is no such place
    {-1, time}              late: nothing done
]]
local clock = redis.call("TIME")
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
if now > tonumber(ARGV[1]) then return {-1, now} end
local now_ms = math.floor(now / 1000)
local answer = {1, now}
for i = 1, #KEYS do
  local lock, field, lease = KEYS[i], ARGV[2 * i], tonumber(ARGV[2 * i + 1])
  local ends = tonumber(redis.call("HGET", lock, field .. ":ends"))
  answer[i + 2] = 0
  if ends and ends > now_ms then
    if ends < now_ms + lease then
      if redis.call("PTTL", lock) < lease then redis.call("PEXPIRE", lock, lease) end
      redis.call("HSET", lock, field .. ":ends", now_ms + lease)
    end
    answer[i + 2] = 1
  end
end
return answer
