-- fair_acquire: acquire the lock if it is the waiter's turn, else join the queue.
-- KEYS[4]  fence counter; absent if the lock is not fenced
-- ARGV[4]  token of the waiter
-- ARGV[5]  time to live of the lock, ms
-- ARGV[6]  how long the waiter stays in the queue without a heartbeat, ms; 0 = do not join
-- ARGV[7]  name of the caller's process. It registers as that of a mutex, if the holder is
--          not of a fair lock and will not look into the queue.
-- Returns the fencing token (0 without a fence) if the token holds the lock now.
-- Otherwise returns {token of the holder, its PTTL}, with a third element 1 if the
-- waiter has become the first in the queue and must watch the holder.
-- Repeating the call with the same token is harmless.
local holder = redis.call('GET', KEYS[1])
local fence = 0
if holder == ARGV[4] then -- it was handed over; works when memory is full
  redis.call('PEXPIRE', KEYS[1], ARGV[5])
  fence = KEYS[4] and redis.call('INCR', KEYS[4]) or 0
elseif not holder then
  holder = serve(ARGV[4]) or ARGV[4]
  if holder == '' then
    return {'', 1} -- ask again at once
  end
  if holder == ARGV[4] then -- the counter first: if this fails, the lock is not acquired
    fence = KEYS[4] and redis.call('INCR', KEYS[4]) or 0
    redis.call('SET', KEYS[1], ARGV[4], 'PX', ARGV[5])
  end
end

if holder == ARGV[4] then
  return fence
end

if ARGV[6] ~= '0' then
  local time = redis.call('TIME')
  local last = redis.call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')[2]
  redis.call('ZADD', KEYS[2], 'NX', (last or 0) + 1, ARGV[4])
  redis.call('ZADD', KEYS[3], time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[6], ARGV[4])
  if string.sub(holder, -17, -17) ~= '8' then
    register(ARGV[1], ARGV[7], '')
  end
  if not last then -- heartbeats extend the TTL; without waiters the queue expires
    redis.call('PEXPIRE', KEYS[2], ARGV[6] * 2)
    redis.call('PEXPIRE', KEYS[3], ARGV[6] * 2)
    return {string.sub(holder, 1, 512), redis.call('PTTL', KEYS[1]), 1}
  end
end
return {string.sub(holder, 1, 512), redis.call('PTTL', KEYS[1])} -- a foreign value may be long
