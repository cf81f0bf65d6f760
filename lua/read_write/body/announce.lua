-- If nobody goes next, all who listen are told of what a hold has given up, unless others go on
-- reading. Afterwards `receivers` is how many clients received the message, -1 if publishing was
-- refused. Clients of Redisson wake one of those who wait at "0", and all of them at "1".
-- Included by release.lua, release_at.lua and force_release.lua, once go_next.lua is there.
--
-- Uses held, mine_w, channel, verb, receivers

if held and not receivers and not mine_w then receivers = 0 end
if not receivers then receivers = redis.pcall(verb, channel, mine_w and "1" or "0") end
if type(receivers) == "table" then receivers = -1 end
