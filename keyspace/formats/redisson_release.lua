-- redisson_release: end the hold of an RLock or an RFairLock, as forceUnlock does.
-- KEYS[1]  the lock: a hash of owner → count
-- KEYS[2]  queue of a fair lock: a list of owners
-- KEYS[3]  deadlines of the waiters: a zset of owner → ms
-- ARGV[1]  channel of the waiters. Each waiter of a fair lock has a channel of its
--          own: this name, a colon, and the owner
-- ARGV[2]  the message that they expect
-- ARGV[3]  owner, and
-- ARGV[4]  count, as last read
-- Returns 1 if the hold was unchanged and is released, else 0.
if redis.pcall('HGET', KEYS[1], ARGV[3]) ~= ARGV[4] then
  return 0
end
redis.call('DEL', KEYS[1])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local first
for _ = 1, 100 do -- a dead waiter would block the others
  first = redis.call('LINDEX', KEYS[2], 0)
  local deadline = first and redis.call('ZSCORE', KEYS[3], first)
  if not deadline or tonumber(deadline) > now then
    break
  end
  redis.call('LPOP', KEYS[2])
  redis.call('ZREM', KEYS[3], first)
end
for _, publish in ipairs({ 'PUBLISH', 'SPUBLISH' }) do -- in a cluster of Redis 7, the channels are sharded
  if first then
    redis.pcall(publish, ARGV[1] .. ':' .. first, ARGV[2])
  end
  redis.pcall(publish, ARGV[1], ARGV[2])
end
return 1
