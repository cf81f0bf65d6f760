-- What a hold field says about permits.

-- How many permits the hold of a field wants, and how many there are for its client if nobody has
-- set the number. Nothing if the field does not say that.
local function wants(field)
  local want, own = string.match(field, ":(%d+):(%d+)$")
  want, own = tonumber(want), tonumber(own)
  if want and want >= 1 and want <= 1000 and own >= 1 and own <= 1000000 then return want, own end
end

-- One of the permits of a hold.
local function permit_of(field, i)
  return string.format("%s:%.0f", field, i)
end
