-- Looks at the arguments of a release.
--
-- Uses field, count, channel, verb, now

if not field or #field == 0 then return {-9, now, 1} end
if not count or count < 0 or count > 65535 or count % 1 ~= 0 then return {-9, now, 2} end
if not channel or #channel == 0 then return {-9, now, 3} end
if verb ~= "PUBLISH" and verb ~= "SPUBLISH" then return {-9, now, 4} end
