-- mutex_acquire: acquire the lock if it is free; else a waiter registers.
-- KEYS[1]  the lock
-- KEYS[2]  fence counter; absent if the lock is not fenced
-- ARGV[1]  token of this attempt
-- ARGV[2]  time to live, ms
-- ARGV[3]  1 if a missing counter starts at the server's time in µs, because it was
--          probably lost; else it starts at 1
-- ARGV[4…] of a waiter: see waiters_acquire
-- Returns the fencing token (0 without a fence) if the token holds the lock now.
-- Otherwise returns {token of the holder, its PTTL} and, if the waiter has registered,
-- its ticket and the number of members before it (-1 = not counted).
-- Repeating the call with the same token is harmless: the token keeps the lock.
-- If the counter cannot be increased, the call fails and writes nothing.
local fence = 0
if KEYS[2] and redis.call('EXISTS', KEYS[1]) == 0 then
  fence = redis.call('INCR', KEYS[2])
  if fence == 1 and ARGV[3] == '1' then
    local time = redis.call('TIME')
    fence = time[1] * 1000000 + time[2]
    redis.call('SET', KEYS[2], string.format('%.0f', fence))
  end
end
local holder = probably_held(4) and redis.call('GET', KEYS[1])
local new = not holder and redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])
if not new then
  holder = holder or redis.call('GET', KEYS[1])
  if holder ~= ARGV[1] then
    return refused(holder, 4)
  end
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
acquired(4)
if KEYS[2] and not new then
  local handed = ARGV[5] == ARGV[1] -- a release has stored the token
  return not handed and tonumber(redis.call('GET', KEYS[2])) or redis.call('INCR', KEYS[2])
end
return fence
