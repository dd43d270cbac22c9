-- go_redislock_extend: set a new deadline of a reentrant mutex of go-redislock.
-- KEYS[1]     the lock
-- KEYS[2]     its count; absent = 1
-- ARGV[1]     the token, and
-- ARGV[2]     the count, as last read
-- ARGV[#ARGV] time to live from now, ms
-- Returns 1 if the hold was unchanged and has the new deadline, else 0.
if redis.pcall('GET', KEYS[1]) ~= ARGV[1] or (redis.pcall('GET', KEYS[2]) or '1') ~= ARGV[2] then
  return 0
end
redis.call('PEXPIRE', KEYS[2], ARGV[#ARGV])
return redis.call('PEXPIRE', KEYS[1], ARGV[#ARGV])
