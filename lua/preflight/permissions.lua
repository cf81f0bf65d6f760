--[[
  Tells what the user who runs this may do, by the server's own word (Redis 7, Valkey). Touches nothing.

  ARGV[2i-1]  command  in lower case
  ARGV[2i]    target   key or channel that it would be used with

  Returns {code, time in us, ...}
    {1, time, yes1, yes2, ...}  1 for each pair that is allowed, else 0
    {0, time}                   this server cannot tell
]]
local clock = redis.call("TIME")
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
if not redis.acl_check_cmd then return {0, now} end
local answer = {1, now}
for i = 1, #ARGV / 2 do
  if redis.acl_check_cmd(ARGV[2 * i - 1], ARGV[2 * i]) then answer[#answer + 1] = 1 else answer[#answer + 1] = 0 end
end
return answer
