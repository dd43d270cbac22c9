-- mutex_acquire: take the lock if it is free.
-- KEYS[1]  the lock
-- KEYS[2]  its fence counter; absent if it is not fenced
-- ARGV[1]  token of this attempt
-- ARGV[2]  time to live, ms
-- ARGV[3]  1 if a counter that is not there begins at the server's time, in µs: it
--          has probably been forgotten; absent if it begins at 1
-- Returns the fencing token (0 without a fence) if the lock is ours now,
-- else {token of the holder, its PTTL}.
-- Sending it twice with one token does no harm: what is ours already stays ours.
-- A counter that cannot be raised is an error, and nothing is written then.
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
    return {string.sub(holder, 1, 512), redis.call('PTTL', KEYS[1])} -- others store what they like
  end
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
if KEYS[2] and not new then
  return tonumber(redis.call('GET', KEYS[2])) or redis.call('INCR', KEYS[2])
end
return fence
