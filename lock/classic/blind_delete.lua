-- blind_delete: acquire the lock if it is free, without a token.
-- KEYS[1]  the lock
-- ARGV[1]  time to live, ms
-- Returns 1 if the lock is acquired, 0 if it is held.
if redis.call('SETNX', KEYS[1], '1') == 0 then
  return 0
end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return 1
