-- fair_quick: claim a fair lock that was handed over, or acquire it if no client waits. It
-- stands first in the script: see waiters_quick.
-- KEYS[1]  the lock
-- KEYS[2]  fence counter; absent if the lock is not fenced
-- ARGV[1]  token of the waiter
-- ARGV[2]  time to live of the lock, ms
-- ARGV[3]  channel of the lock
local holder = redis.call('GET', KEYS[1])
local waiters = string.sub(ARGV[3], 1, -5) .. 'waiters'
if holder == ARGV[1] then -- works when memory is full
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return KEYS[2] and redis.call('INCR', KEYS[2]) or 0
end

-- take stores the token. The counter is the first: if this fails, the lock is not acquired.
local function take()
  local fence = KEYS[2] and redis.call('INCR', KEYS[2]) or 0
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
  return fence
end
if not holder and redis.pcall('EXISTS', waiters) == 0 then
  return take()
end
