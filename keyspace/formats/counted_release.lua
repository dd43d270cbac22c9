-- counted_release: end the hold of a reentrant mutex whose count is in a second key.
-- KEYS[1]  the lock
-- KEYS[2]  its count; absent = 1
-- ARGV[1]  the token, and
-- ARGV[2]  the count, as last read
-- Returns 1 if the hold was unchanged and is released, else 0.
if redis.pcall('GET', KEYS[1]) ~= ARGV[1] or (redis.pcall('GET', KEYS[2]) or '1') ~= ARGV[2] then
  return 0
end
redis.call('DEL', KEYS[1], KEYS[2])
return 1
