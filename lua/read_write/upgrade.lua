--[[
  Gives the write lock to the owner of the only reader that is alive, as a hold of its own beside the
  reads. Repeating it changes nothing.

  KEYS[1]    lock       hash: mode -> "read" or "write", hold field -> reads,
                        "<hold field>:write" -> writes; a count of 0 is a reservation
  KEYS[2]    timeout    of `from`: string "<base>:<hold field>:rwlock_timeout:1"
  KEYS[3]    fence      string: the last fencing token of this slot
  KEYS[3+i]  timeout    of the reader ARGV[5+i]
  ARGV[1]    from       "<client uuid>:<hold id>" of the reader
  ARGV[2]    to         "<client uuid>:<hold id>" of the writer; never used for anything else
  ARGV[3]    lease_ms   time to live, never shortened; decimal digits, as Redis reads them
  ARGV[4]    not_after  server time in us after which nothing is granted
  ARGV[5]    told       how many readers the owner was told about
  ARGV[5+i]  reader     the hold field of each. It is removed if it is dead

  Returns {code, time in us, ...}
    {1, time, token}  upgraded
    {0, time, ...}    others read; then 1 if this call has removed a reader that was dead, else 0,
                      and up to 16 holds
    {0, time, 0}      an earlier upgrade of these reads is not undone yet
    {-1, time}        late: nothing done
    {-2, time}        `from` does not read any more, or others count it as dead
    {-4, time, what}  conflict: 5 fence counter no number
    {-9, time, n}     ARGV[n] not allowed; 5 also if keys or readers are not as many
]]
-- include read_write/body/next_token.lua
-- include read_write/body/holds_of.lua

local lock, timeout, fence = KEYS[1], KEYS[2], KEYS[3]
local from, to, lease_text = ARGV[1], ARGV[2], ARGV[3]
local lease, not_after, told = tonumber(lease_text), tonumber(ARGV[4]), tonumber(ARGV[5])

local clock = redis.call("TIME")
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
if not from or #from == 0 then return {-9, now, 1} end
if not to or #to == 0 or to == from then return {-9, now, 2} end
if not lease or lease < 1 or lease > 86400000 or lease % 1 ~= 0 then return {-9, now, 3} end
if not not_after or not_after < 0 or not_after > 9007199254740991 or not_after % 1 ~= 0 then
  return {-9, now, 4}
end
if not told or #ARGV ~= 5 + told or #KEYS ~= 3 + told then return {-9, now, 5} end
if now > not_after then return {-1, now} end

local held = redis.pcall("HGET", lock, "mode")
if type(held) == "table" then
  local kind = redis.call("TYPE", lock).ok
  if kind == "hash" or kind == "none" then
    return {err = string.format("%s (HGET)", held.err)}
  end
  return {-2, now}
end
local wfield = string.format("%s:write", to)
local mine_w = held and redis.call("HGET", lock, wfield)
if not mine_w then
  local reads = (held == "read" or held == "write") and redis.call("HGET", lock, from)
  if not reads or reads == "0" or redis.call("EXISTS", timeout) == 0 then return {-2, now} end
  -- Nobody else can write beside these reads.
  if held == "write" then return {0, now, 0} end
  local removed, fields = 0, redis.call("HLEN", lock)
  for i = 1, told do
    local reader = ARGV[5 + i]
    if redis.call("EXISTS", KEYS[3 + i]) == 0 and reader ~= "mode" then
      removed = removed + redis.call("HDEL", lock, reader)
    end
  end
  if fields - removed > 2 then
    local answer, holds = {0, now}, holds_of(lock)
    answer[3] = removed > 0 and 1 or 0
    for i = 1, #holds do
      answer[3 + i] = holds[i]
    end
    return answer
  end
end

local token, failure = next_token(fence, now)
if failure then return failure end
redis.call("SET", fence, token)
-- Before the field, so that an error leaves the reads as they were.
local pttl = redis.call("PTTL", lock)
if pttl >= 0 and pttl < lease then redis.call("PEXPIRE", lock, lease_text) end
redis.call("HSET", lock, "mode", "write", wfield, "1")
return {1, now, token}
