-- fair_acquire: take the lock if it is our turn, else stand in the queue.
-- KEYS[1]  the lock: a string, the token of the holder
-- KEYS[2]  queue: zset of token → ticket
-- KEYS[3]  alive: zset of token → ms at which the waiter counts as gone
-- KEYS[4]  fence counter; absent if it is not fenced
-- ARGV[1]  our token
-- ARGV[2]  time to live, ms
-- ARGV[3]  how long a waiter lives without a sign of life, ms; 0 = do not queue
-- ARGV[4]  how long a waiter has to claim what it was handed, ms
-- ARGV[5]  channel on which waiters listen
-- Returns the fencing token (0 without a fence) if the lock is ours now,
-- else {token of the holder, its PTTL}.
-- Sending it twice with one token does no harm.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- The first waiter that is alive, nil if there is none; the dead before it are
-- dropped, no more than a hundred at a time: '' says that there may be more.
local function head()
  for _ = 1, 100 do
    local first = redis.call('ZRANGE', KEYS[2], 0, 0)[1]
    if not first then
      return nil
    end
    local gone = redis.call('ZSCORE', KEYS[3], first)
    if gone and tonumber(gone) > now then
      return first
    end
    redis.call('ZREM', KEYS[2], first)
    redis.call('ZREM', KEYS[3], first)
  end
  return ''
end

local holder = redis.call('GET', KEYS[1])
if holder == ARGV[1] then -- handed to us; works when memory is full
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
elseif not holder then
  local first = head()
  if first == '' then
    return {'', 1} -- ask again at once
  end
  holder = first or ARGV[1]
  if holder == ARGV[1] then
    redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
  else -- its turn, not ours: nobody handed the lock over
    redis.call('ZREM', KEYS[2], first)
    redis.call('ZREM', KEYS[3], first)
    redis.call('SET', KEYS[1], first, 'PX', ARGV[4])
    redis.pcall('PUBLISH', ARGV[5], first)
  end
end

if holder == ARGV[1] then
  redis.call('ZREM', KEYS[2], ARGV[1])
  redis.call('ZREM', KEYS[3], ARGV[1])
  if KEYS[4] then
    return redis.call('INCR', KEYS[4])
  end
  return 0
end

if ARGV[3] ~= '0' then
  local last = redis.call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')[2] or 0
  redis.call('ZADD', KEYS[2], 'NX', last + 1, ARGV[1])
  redis.call('ZADD', KEYS[3], now + ARGV[3], ARGV[1])
  -- Nobody's queue: gone soon after the last sign of life.
  redis.call('PEXPIRE', KEYS[2], ARGV[3] * 2)
  redis.call('PEXPIRE', KEYS[3], ARGV[3] * 2)
end
return {holder, redis.call('PTTL', KEYS[1])}
