-- token_extend: a new deadline for a lock that is a string with a token.
-- KEYS[1]     the lock
-- ARGV[1]     the token that was seen
-- ARGV[#ARGV] time to live from now, ms
-- Returns 1 if it was still held so and has the deadline now, else 0.
if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
return redis.call('PEXPIRE', KEYS[1], ARGV[#ARGV])
