-- token_release: end the hold of a lock that is a string with a token.
-- KEYS[1]  the lock
-- KEYS[2…] the keys that are deleted with it
-- ARGV[1]  the token, as last read
-- ARGV[2]  channel of the waiters, and
-- ARGV[3]  the message that they expect; both absent if they poll
-- Returns 1 if the hold was unchanged and is released, else 0.
if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
redis.call('DEL', unpack(KEYS))
if ARGV[2] then
  redis.pcall('PUBLISH', ARGV[2], ARGV[3])
end
return 1
