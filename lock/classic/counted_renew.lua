-- counted_renew: set the time to live of the lock if it has the token.
-- KEYS[1]  the lock
-- ARGV[1]  token of the holder
-- ARGV[2]  time to live from now, ms
-- Returns 1, or 0 if the lock has another token.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
