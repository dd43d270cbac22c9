-- reentrant_release: leave the lock; the last entry releases it.
-- KEYS[1]  the lock
-- ARGV[1]  token of the holder
-- ARGV[2]  new count; 0 = release the lock
-- ARGV[3]  channel of the waiters
-- Returns nil if the token does not hold the lock, 1 if the lock is free now, 0 if it is
-- still held. Other libraries with this format return the same.
-- Works when memory is full: a script whose first write is allowed then may write on.
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
  return nil
end
if ARGV[2] ~= '0' then
  redis.call('PEXPIRE', KEYS[1], redis.call('PTTL', KEYS[1]))
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
  return 0
end
redis.call('DEL', KEYS[1])
redis.pcall('PUBLISH', ARGV[3], KEYS[1])
return 1
