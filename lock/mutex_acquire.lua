-- mutex_acquire: take the lock if it is free.
-- KEYS[1]  the lock
-- KEYS[2]  its fence counter; absent if it is not fenced
-- ARGV[1]  token of this attempt
-- ARGV[2]  time to live, ms
-- Returns the fencing token (0 without a fence) if the lock is ours now,
-- else {token of the holder, its PTTL}.
-- Sending it twice with one token does no harm: what is ours already stays ours.
local new = redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])
if not new then
  local holder = redis.call('GET', KEYS[1])
  if holder ~= ARGV[1] then
    return {holder, redis.call('PTTL', KEYS[1])}
  end
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
if not KEYS[2] then
  return 0
end
if not new then
  return tonumber(redis.call('GET', KEYS[2])) or redis.call('INCR', KEYS[2])
end
return redis.call('INCR', KEYS[2])
