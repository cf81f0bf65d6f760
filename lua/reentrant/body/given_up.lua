-- Tells what became of a hold that was given up. If nobody was told by name, receivers is nil.
--
-- Uses lock, channel, verb, fields, is_own, receivers, now

if not is_own then return {0, now} end
if not receivers then receivers = redis.pcall(verb, channel, "0") end
if type(receivers) == "table" then receivers = -1 end
if fields == 1 then return {1, now, receivers} end
-- The rest is data of another program, which must not end with our lease. A read-write lock has a
-- time to live of its own.
if redis.pcall("HEXISTS", lock, "mode") ~= 0 or type(redis.pcall("PERSIST", lock)) == "table" then
  return {4, now, receivers}
end
return {3, now, receivers}
