-- mutex_extend: set the time to live of the lock if the token holds it.
-- KEYS[1]  the lock
-- ARGV[1]  token of the holder
-- ARGV[2]  time to live from now, ms
-- Returns 1, or 0 if the token does not hold the lock. A lost lock is not created
-- again. Works when memory is full.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
