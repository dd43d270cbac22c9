-- locktop_release: end the hold of locktop's Mutex or Fair, and wake the waiters. Of a fair lock
-- of an older version, hand it to the first living waiter.
-- KEYS[1]  the lock
-- KEYS[2]  queue of an older fair lock: a zset of token → ticket
-- KEYS[3]  alive: a zset of token → time in ms until which the waiter counts as alive
-- ARGV[1]  the token, as last read
-- ARGV[2]  channel of the lock. The channel of a waiter's process is this name, a
--          colon, and the last 12 characters of the waiter's token
-- Returns 1 if the hold was unchanged and is released, else 0.
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
    redis.call('SET', KEYS[1], first, 'PX', 1000) -- the waiter claims the lock in this time, or loses it
    redis.pcall('PUBLISH', ARGV[2] .. ':' .. string.sub(first, -12), first)
    return 1
  end
end
redis.call('DEL', KEYS[1])
redis.pcall('PUBLISH', ARGV[2], KEYS[1])
return 1
