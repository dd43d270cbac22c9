-- rueidislock_extend: set a new deadline of a rueidislock.
-- KEYS        all keys that the lock may have
-- ARGV[1]     the token in most of the existing keys, as last read
-- ARGV[#ARGV] time to live from now, ms
-- Returns 1 if any key still had the token; these keys have the new deadline. Else 0.
local extended = 0
for i = 1, #KEYS do
  if redis.pcall('GET', KEYS[i]) == ARGV[1] then
    redis.call('PEXPIRE', KEYS[i], ARGV[#ARGV])
    extended = 1
  end
end
return extended
