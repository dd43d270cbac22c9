-- rueidislock_extend: set a later deadline of a rueidislock.
-- KEYS        all keys that the lock may have
-- ARGV[1]     the token in most of the existing keys, as last read
-- ARGV[#ARGV] time to live from now, ms
-- Returns 1 if any key still had the token and has the new deadline, else 0.
local extended = 0
for i = 1, #KEYS do
  if redis.pcall('GET', KEYS[i]) == ARGV[1] then
    extended = math.max(extended, extend(KEYS[i]))
  end
end
return extended
