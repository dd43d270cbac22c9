-- counted_extend: set a later deadline of a reentrant mutex whose count is in a second key.
-- KEYS[1]     the lock
-- KEYS[2]     its count; absent = 1
-- ARGV[1]     the token, and
-- ARGV[2]     the count, as last read
-- ARGV[#ARGV] time to live from now, ms
-- Returns 1 if the hold was unchanged and has the new deadline, else 0.
if redis.pcall('GET', KEYS[1]) ~= ARGV[1] or (redis.pcall('GET', KEYS[2]) or '1') ~= ARGV[2] then
  return 0
end
extend(KEYS[2])
return extend(KEYS[1])
