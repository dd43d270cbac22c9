-- reentrant_release: leave the lock; the last entry releases it.
-- KEYS[1]  the lock
-- ARGV[1]  token of the holder
-- ARGV[2]  new count; 0 = release the lock
-- ARGV[3…] see waiters_release
-- held is true if the token holds the lock; ends and popped: see waiters_quick, which
-- stands before.
-- Returns nil if the token does not hold the lock, 0 if it is still held; else what
-- release returns. Other libraries with this format return nil, 0 and 1, too.
-- Works when memory is full: a script whose first write is allowed then may write on.
local function hand(token, ms)
  redis.call('DEL', KEYS[1])
  redis.call('HSET', KEYS[1], token, 1)
  redis.call('PEXPIRE', KEYS[1], ms)
end
if not held then
  return give_up(3, is_deleted, hand, delete)
end
if not ends then
  redis.call('PEXPIRE', KEYS[1], redis.call('PTTL', KEYS[1]))
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
  return 0
end
return release(3, hand, delete, nil, popped)
