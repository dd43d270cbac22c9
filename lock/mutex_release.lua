-- mutex_release: give the lock back, if it is still ours, and wake a waiter.
-- KEYS[1]  the lock
-- ARGV[1]  our token
-- ARGV[2]  channel on which waiters listen; empty = tell nobody
-- Returns 1 if the lock was ours, nil if not: then nothing was touched.
-- Runs also when memory is full. PUBLISH may be forbidden by an ACL; the lock
-- is free all the same, and waiters find out at its old deadline.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return nil
end
redis.call('DEL', KEYS[1])
if ARGV[2] ~= '' then
  redis.pcall('PUBLISH', ARGV[2], KEYS[1])
end
return 1
