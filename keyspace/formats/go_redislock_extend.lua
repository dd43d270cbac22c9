-- go_redislock_extend: a new deadline for a reentrant mutex of go-redislock.
-- KEYS[1]     the lock
-- KEYS[2]     how often it was entered; absent = once
-- ARGV[1]     the token and
-- ARGV[2]     the count that were seen
-- ARGV[#ARGV] time to live from now, ms
-- Returns 1 if it was still held so and has the deadline now, else 0.
if redis.pcall('GET', KEYS[1]) ~= ARGV[1] or (redis.pcall('GET', KEYS[2]) or '1') ~= ARGV[2] then
  return 0
end
redis.call('PEXPIRE', KEYS[2], ARGV[#ARGV])
return redis.call('PEXPIRE', KEYS[1], ARGV[#ARGV])
