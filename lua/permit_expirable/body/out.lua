-- How many permits are out.

-- Returns their number; whether the key has something else; and the error of Redis, if it refuses to
-- tell.
local function count_out(permits)
  local out = redis.pcall("ZCARD", permits)
  if type(out) ~= "table" then return out end
  local kind = redis.call("TYPE", permits).ok
  if kind == "zset" or kind == "none" then return nil, nil, out end
  return nil, true
end
