-- reentrant_acquire: acquire the lock, or enter it again; else a waiter registers.
-- KEYS[1]  the lock: a hash of holder → count, with one field
-- KEYS[2]  fence counter; absent if the lock is not fenced
-- ARGV[1]  token of the holder
-- ARGV[2]  time to live, ms
-- ARGV[3]  new count; with more than 1 the token must hold the lock already
-- ARGV[4…] of a waiter: see waiters_acquire
-- Returns the fencing token (0 without a fence) if the token holds the lock now.
-- Otherwise returns {token of the holder, its PTTL} and, if the waiter has registered,
-- its ticket and the number of members before it (-1 = not counted).
-- The count is set, not increased, so repeating the call is harmless.
local ours = redis.call('HEXISTS', KEYS[1], ARGV[1])
if ours == 0 and redis.call('EXISTS', KEYS[1]) == 1 then
  local holder = holder_of(KEYS[1])
  return holder and refused(holder, 4) or not_a_lock
end
if ours == 0 and ARGV[3] ~= '1' then
  return {'', 0} -- a lost hold is not created again
end
local fence = 0 -- first: if this fails, nothing is written
if KEYS[2] then
  local entered = ours == 1 and ARGV[5] ~= ARGV[1] -- else a release has stored the token
  fence = entered and tonumber(redis.call('GET', KEYS[2])) or redis.call('INCR', KEYS[2])
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
acquired(4)
return fence
