-- locktop_break: end the hold of a Mutex or a Fair of ours, and hand it to the
-- first waiter that is alive.
-- KEYS[1]  the lock
-- KEYS[2]  queue of a fair lock: a zset of token → ticket
-- KEYS[3]  alive: a zset of token → ms at which the waiter counts as gone
-- ARGV[1]  the token that was seen
-- ARGV[2]  channel on which waiters listen; a lock is handed over on that of the
--          waiter's process, which the last 12 characters of its token name
-- Returns 1 if it was still held so and is not any more, else 0.
if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then
  return 0
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
    redis.call('SET', KEYS[1], first, 'PX', 1000) -- it claims it, or loses it
    redis.pcall('PUBLISH', ARGV[2] .. ':' .. string.sub(first, -12), first)
    return 1
  end
end
redis.call('DEL', KEYS[1])
redis.pcall('PUBLISH', ARGV[2], KEYS[1])
return 1
