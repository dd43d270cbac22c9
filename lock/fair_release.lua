-- fair_release: hand the lock to the first waiter, or leave the queue.
-- ARGV[4]  token of the holder or waiter
-- ARGV[5]  its process; a waiter of this process learns of the hand-over by the reply
-- ARGV[6]  how long a waiter of this process gets the lock, ms
-- Returns nil if the token did not hold the lock (it has left the queue), the token of
-- the next holder if the lock was handed over, 1 if the lock is free now, or 2 if also
-- a waiting mutex of the caller's process was woken.
-- Works when memory is full: a script whose first write is allowed then may write on.
if redis.call('GET', KEYS[1]) ~= ARGV[4] then
  redis.call('ZREM', KEYS[3], ARGV[4])
  if redis.call('ZREM', KEYS[2], ARGV[4]) == 1 then
    watch()
  end
  return nil
end
local first = serve(nil, ARGV[5], ARGV[6])
if first and first ~= '' then
  return first
end
local mutex, own = wake(ARGV[1], ARGV[5], ARGV[3])
if mutex and is_token(mutex) then
  redis.call('SET', KEYS[1], mutex, 'PX', ARGV[2])
  return mutex
end
redis.call('DEL', KEYS[1])
return own and 2 or 1
