-- What is under the name of a semaphore.
--
-- Uses other_hash

-- Returns the number of permits that was set, if one was; and the answer of the script, if another
-- kind of lock or other data is there, or Redis refuses to tell.
local function look(lock, now)
  local known = redis.pcall("HMGET", lock, "kind", "permits")
  if known.err then
    local kind = redis.call("TYPE", lock).ok
    if kind == "hash" or kind == "none" then return nil, known end
    return nil, {-4, now, 1}
  end
  if known[1] ~= "semaphore" and redis.call("EXISTS", lock) == 1 then
    return nil, {-4, now, other_hash(lock, known[1])}
  end
  return tonumber(known[2])
end
