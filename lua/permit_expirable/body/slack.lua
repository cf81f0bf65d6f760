-- What the clocks of Redisson's clients may be off.

-- Our ends are so much later than the leases, and what has run out comes back so much after its end:
-- the ends of Redisson's clients are by their clocks, and they take back by their clocks.
local SLACK_MS = 5000
