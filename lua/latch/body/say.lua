-- The answer of an operation that is done or not, such as setting a count.
--
-- Uses now

-- What is kept: 1 done; 0 there was nothing to do; -10 and less, the key was no latch.
local function say(done)
  if done == 1 then return {1, now} end
  if done == 0 then return {0, now} end
  return {-4, now, -10 - done}
end
