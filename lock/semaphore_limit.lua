-- semaphore_limit: store the limit for all clients, or delete the stored one, and wake a
-- waiter if a permit is free.
-- KEYS[2]  the stored limit; it does not expire
-- ARGV[1]  limit; if the stored one is deleted, that of the caller
-- ARGV[2]  1 = store it, 0 = delete the stored one
-- ARGV[3…] see waiters_release
-- Returns the token to which a permit was handed, 3 if a waiter of the caller's process
-- must try, or else 1. The first waiter wakes the others for which there are permits.
local last, old = ends()
if old == false then
  return not_a_lock
end
if ARGV[2] == '1' then
  redis.call('SET', KEYS[2], ARGV[1])
else
  redis.call('DEL', KEYS[2])
end
if old and old ~= ARGV[1] then
  redis.call('ZADD', KEYS[1], '+inf', 'locktop-limit:' .. ARGV[1])
  redis.call('ZREM', KEYS[1], 'locktop-limit:' .. old)
end
if not is_free() then
  return 1
end
local function hand(token, ms)
  store(token, ms, ARGV[1], last, old and ARGV[1])
end
local next = release(3, hand, expire, 'more')
return next == 2 and 3 or next
