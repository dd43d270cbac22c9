-- mutex_release: release the lock if the token holds it, and wake a waiter.
-- KEYS[1]  the lock
-- ARGV[1]  token of the holder
-- ARGV[2]  channel of the waiters; empty = no message
-- Returns 1, or nil if the token does not hold the lock; nothing is changed then.
-- Works when memory is full. An ACL may forbid PUBLISH: the lock is released anyway,
-- and the waiters try again at its former deadline.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return nil
end
redis.call('DEL', KEYS[1])
if ARGV[2] ~= '' then
  redis.pcall('PUBLISH', ARGV[2], KEYS[1])
end
return 1
