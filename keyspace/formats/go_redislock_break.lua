-- go_redislock_break: end the hold of a reentrant mutex of go-redislock.
-- KEYS[1]  the lock
-- KEYS[2]  how often it was entered; absent = once
-- ARGV[1]  the token and
-- ARGV[2]  the count that were seen
-- Returns 1 if it was still held so and is free now, else 0.
if redis.pcall('GET', KEYS[1]) ~= ARGV[1] or (redis.pcall('GET', KEYS[2]) or '1') ~= ARGV[2] then
  return 0
end
redis.call('DEL', KEYS[1], KEYS[2])
return 1
