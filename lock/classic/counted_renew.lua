-- counted_renew: a new time to live for the lock, if it is still ours.
-- KEYS[1]  the lock
-- ARGV[1]  our token
-- ARGV[2]  time to live from now, ms
-- Returns 1 if the lock was ours, 0 if not.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
