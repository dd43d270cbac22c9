-- fair_acquire: take the lock if it is our turn, else stand in the queue.
-- KEYS[4]  fence counter; absent if it is not fenced
-- ARGV[4]  our token
-- ARGV[5]  time to live, ms
-- ARGV[6]  how long a waiter lives without a sign of life, ms; 0 = do not queue
-- Returns the fencing token (0 without a fence) if the lock is ours now,
-- else {token of the holder, its PTTL}, and 1 if we have become the first in the
-- queue, who has to watch the holder.
-- Sending it twice with one token does no harm.
local holder = redis.call('GET', KEYS[1])
local fence = 0
if holder == ARGV[4] then -- handed to us; works when memory is full
  redis.call('PEXPIRE', KEYS[1], ARGV[5])
  fence = KEYS[4] and redis.call('INCR', KEYS[4]) or 0
elseif not holder then -- nobody handed it over
  holder = serve(ARGV[4]) or ARGV[4]
  if holder == '' then
    return {'', 1} -- ask again at once
  end
  if holder == ARGV[4] then -- the counter first: if it cannot be raised, the lock is not taken
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
  if not last then -- signs of life prolong it; nobody's queue is gone soon after the last
    redis.call('PEXPIRE', KEYS[2], ARGV[6] * 2)
    redis.call('PEXPIRE', KEYS[3], ARGV[6] * 2)
    return {string.sub(holder, 1, 512), redis.call('PTTL', KEYS[1]), 1}
  end
end
return {string.sub(holder, 1, 512), redis.call('PTTL', KEYS[1])} -- others store what they like
