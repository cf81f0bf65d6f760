-- How many permits are free.

-- Returns the number, if one was set; whether the key has something else; and the error of Redis, if
-- it refuses to tell.
local function read_free(lock)
  local text = redis.pcall("GET", lock)
  if type(text) == "table" then
    local kind = redis.call("TYPE", lock).ok
    if kind == "string" or kind == "none" then return nil, nil, text end
    return nil, true
  end
  if not text then return nil end
  local is_number = text == "0" or string.match(text, "^%-?[1-9]%d*$")
  if not is_number or #text > 15 then return nil, true end
  return tonumber(text)
end
