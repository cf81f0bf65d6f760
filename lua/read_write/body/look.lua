-- What a hold has of a read-write lock.
-- Included by release.lua, release_at.lua and force_release.lua, once they have read the arguments.
--
-- Uses lock, field

local wfield = string.format("%s:write", field)
local held = redis.pcall("HGET", lock, "mode")
if type(held) == "table" then
  local kind = redis.call("TYPE", lock).ok
  if kind == "hash" or kind == "none" then
    return {err = string.format("%s (HGET)", held.err)}
  end
  held = "other"
elseif not held then
  held = redis.call("EXISTS", lock) == 1 and "other"
elseif held ~= "read" and held ~= "write" then
  held = "other"
end
-- `held` is the mode, false for a free lock, "other" for another value.
local is_ours = held and held ~= "other"
local mine_r = is_ours and redis.call("HGET", lock, field)
local mine_w = is_ours and redis.call("HGET", lock, wfield)
-- A reservation is no hold.
local reading, writing = mine_r and mine_r ~= "0", mine_w and mine_w ~= "0"
