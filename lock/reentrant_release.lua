-- reentrant_release: leave the lock, and with the last entry free it.
-- KEYS[1]  the lock
-- ARGV[1]  token of the holder
-- ARGV[2]  what the count becomes; 0 = free the lock
-- ARGV[3]  channel on which waiters listen
-- Returns nil if the lock was not ours, 1 if it is free now, 0 if it is still
-- held: the answers of the widespread form of this lock.
-- Works when memory is full: after a first write that is allowed then, a script
-- may go on to others.
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
