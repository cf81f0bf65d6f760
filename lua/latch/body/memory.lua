-- How long what an operation has come to is kept.

-- In ms: for so long after the deadline of its command, and for a day at most.
local function kept_for(now, not_after, keep)
  local life = math.floor((not_after - now) / 1000) + keep
  if life > 86400000 then return 86400000 end
  return life
end
