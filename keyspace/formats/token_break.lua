-- token_break: end the hold of a lock that is a string with a token.
-- KEYS[1]  the lock
-- KEYS[2…] what goes with it
-- ARGV[1]  the token that was seen
-- ARGV[2]  channel on which waiters listen, and
-- ARGV[3]  what they expect to hear; both absent if they only ask again
-- Returns 1 if it was still held so and is free now, else 0.
if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
redis.call('DEL', unpack(KEYS))
if ARGV[2] then
  redis.pcall('PUBLISH', ARGV[2], ARGV[3])
end
return 1
