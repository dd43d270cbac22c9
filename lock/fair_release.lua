-- fair_release: hand the lock to the first waiter, or leave the queue.
-- ARGV[4]  our token
-- ARGV[5]  our process: a waiter of it learns of its turn by the reply
-- ARGV[6]  how long it has the lock then, ms
-- Returns nil if the lock was not ours (a place in the queue is given up), the
-- token it was handed to, or 1 if nobody waited and it is free now.
-- Works when memory is full: after a first write that is allowed then, a script
-- may go on to others.
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
redis.call('DEL', KEYS[1])
redis.pcall('PUBLISH', ARGV[1], KEYS[1])
return 1
