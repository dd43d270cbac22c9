-- token_extend: set a later deadline of a lock that is a string with a token.
-- KEYS[1]     the lock
-- ARGV[1]     the token, as last read
-- ARGV[#ARGV] time to live from now, ms
-- Returns 1 if the hold was unchanged and has the new deadline, else 0.
if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
return extend(KEYS[1])
