--[[
  Gives up whatever a hold id may have left: a hold, a reservation or a place. It may be repeated at
  will.

  KEYS[1]  lock     hash: hold field -> hold count; a count of 0 is a reservation
  KEYS[2]  line     sorted set: hold field -> ticket; may be left out with the marks: then a freed
                    lock is announced to everybody, and no place is given up
  KEYS[3]  marks    set: client uuids that have not been heard of since the lock was reserved for
                    them
  ARGV[1]  field    "<client uuid>:<hold id>"
  ARGV[2]  count    0
  ARGV[3]  channel  where a freed lock is announced
  ARGV[4]  verb     PUBLISH or SPUBLISH

  Returns {code, time in us, ...}
    {5, time, ticket}     it had a place in the line, with this ticket
    {1, time, receivers}  freed and published; receivers -1 when publishing was refused
    {3, time, receivers}  freed and published, but the hash has other fields: they stay, without a
                          time to live
    {4, time, receivers}  the same, but they keep the time to live: they are a read-write lock, or
                          Redis refused HEXISTS or PERSIST
    {0, time}             the key was gone; the lock was passed on to the next in line
    {2, time}             only with another count, which is not sent
    {-3, time}            another hold has the key
    {-9, time, n}         ARGV[n] not allowed
]]
local lock, line, marks = KEYS[1], KEYS[2], KEYS[3]
local field, count, channel, verb = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]

local clock = redis.call("TIME")
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
-- include reentrant/body/reserve.lua
-- include fair/body/pass_on.lua

local ticket = line and field and redis.pcall("ZSCORE", line, field)

local function undo()
-- include fair/body/release.lua
end

local answer = undo()
if type(ticket) == "string" and (answer[1] == 0 or answer[1] == -3) then
  return {5, now, tonumber(ticket)}
end
return answer
