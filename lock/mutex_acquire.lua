-- mutex_acquire: take the lock if it is free.
-- KEYS[1]  the lock
-- ARGV[1]  token of this attempt
-- ARGV[2]  time to live, ms
-- Returns 1 if it is ours now, else {token of the holder, its PTTL}.
-- Sending it twice with one token does no harm: what is ours already stays ours.
local holder = redis.call('GET', KEYS[1])
if not holder or holder == ARGV[1] then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
  return 1
end
return {holder, redis.call('PTTL', KEYS[1])}
