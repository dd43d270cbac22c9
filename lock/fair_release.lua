-- fair_release: hand the lock to the first waiter, or leave the queue.
-- KEYS[1]  the lock
-- KEYS[2]  queue: zset of token → ticket
-- KEYS[3]  alive: zset of token → ms at which the waiter counts as gone
-- ARGV[1]  our token
-- ARGV[2]  how long a waiter has to claim what it was handed, ms
-- ARGV[3]  channel on which waiters listen
-- Returns nil if the lock was not ours (a place in the queue is given up), the
-- token it was handed to, or 1 if nobody waited and it is free now.
-- Works when memory is full: after a first write that is allowed then, a script
-- may go on to others.
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('ZREM', KEYS[3], ARGV[1])
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return nil
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for _ = 1, 100 do
  local first = redis.call('ZRANGE', KEYS[2], 0, 0)[1]
  if not first then
    break
  end
  local gone = redis.call('ZSCORE', KEYS[3], first)
  redis.call('ZREM', KEYS[2], first)
  redis.call('ZREM', KEYS[3], first)
  if gone and tonumber(gone) > now then
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
    redis.call('SET', KEYS[1], first, 'PX', ARGV[2])
    redis.pcall('PUBLISH', ARGV[3], first)
    return first
  end
end
redis.call('DEL', KEYS[1])
redis.pcall('PUBLISH', ARGV[3], KEYS[1])
return 1
