-- Looks at the arguments of an acquire, but for those about messages.
--
-- Uses field, count, lease, not_after, mode, ticket, hears, now

if not field or #field == 0 then return {-9, now, 1} end
if not count or count < 1 or count > 65535 or count % 1 ~= 0 then return {-9, now, 2} end
if not lease or lease < 1 or lease > 86400000 or lease % 1 ~= 0 then return {-9, now, 3} end
if not not_after or not_after < 0 or not_after > 9007199254740991 or not_after % 1 ~= 0 then
  return {-9, now, 4}
end
if mode ~= "first" and mode ~= "try" and mode ~= "again" then return {-9, now, 5} end
if not ticket or ticket < 0 or ticket > 9007199254740991 or ticket % 1 ~= 0 then
  return {-9, now, 6}
end
if hears ~= "1" and hears ~= "0" then return {-9, now, 7} end
