--[[
  Tells what the user who runs this may do, by the server's own word (Redis 7, Valkey). Touches
  nothing.

  ARGV[2i-1]  command  in lower case
  ARGV[2i]    target   key or channel that it would be used with

  Returns {code, time in us, ...}
    {1, time, yes1, yes2, ...}  for each pair: 1 allowed, 0 not allowed, -1 the server does not have
                                this command
    {0, time}                   this server cannot tell
]]
local clock = redis.call("TIME")
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
if not redis.acl_check_cmd then return {0, now} end
local answer = {1, now}
for i = 1, #ARGV / 2 do
  local known, allowed = pcall(redis.acl_check_cmd, ARGV[2 * i - 1], ARGV[2 * i])
  local yes = 0
  if not known then yes = -1 elseif allowed then yes = 1 end
  answer[#answer + 1] = yes
end
return answer
