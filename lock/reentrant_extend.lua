-- reentrant_extend: a new time to live for the lock, if it is still ours.
-- KEYS[1]  the lock
-- ARGV[1]  token of the holder
-- ARGV[2]  time to live from now, ms
-- Returns 1 if the lock was ours, 0 if not: a lost lock is never made anew.
-- Runs also when memory is full.
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
  return 0
end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
