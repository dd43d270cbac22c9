-- mutex_acquire: acquire the lock if it is free.
-- KEYS[1]  the lock
-- KEYS[2]  fence counter; absent if the lock is not fenced
-- ARGV[1]  token of this attempt
-- ARGV[2]  time to live, ms
-- ARGV[3]  1 if a missing counter starts at the server's time in µs, because it was
--          probably lost; absent if it starts at 1
-- Returns the fencing token (0 without a fence) if the token holds the lock now.
-- Otherwise returns {token of the holder, its PTTL}.
-- Repeating the call with the same token is harmless: the token keeps the lock.
-- If the counter cannot be increased, the call fails and writes nothing.
local fence = 0
if KEYS[2] and redis.call('EXISTS', KEYS[1]) == 0 then
  fence = redis.call('INCR', KEYS[2])
  if fence == 1 and ARGV[3] then
    local time = redis.call('TIME')
    fence = time[1] * 1000000 + time[2]
    redis.call('SET', KEYS[2], string.format('%.0f', fence))
  end
end
local new = redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])
if not new then
  local holder = redis.call('GET', KEYS[1])
  if holder ~= ARGV[1] then
    return {string.sub(holder, 1, 512), redis.call('PTTL', KEYS[1])} -- a foreign value may be long
  end
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
if KEYS[2] and not new then
  return tonumber(redis.call('GET', KEYS[2])) or redis.call('INCR', KEYS[2])
end
return fence
