-- mutex_release: release the lock if the token holds it, and wake a waiter.
-- KEYS[1]  the lock
-- ARGV[1]  token of the holder
-- ARGV[2…] see waiters_release
-- ends and popped: see waiters_quick, which stands before.
-- Returns nil if the token does not hold the lock; else what release returns.
-- Works when memory is full: a script whose first write is allowed then may write on.
-- An ACL may forbid PUBLISH: the lock is released anyway, and the waiters try again by
-- themselves.
local function hand(token, ms)
  redis.call('SET', KEYS[1], token, 'PX', ms)
end
if not ends then
  return give_up(2, is_deleted, hand, delete)
end
return release(2, hand, delete, nil, popped)
