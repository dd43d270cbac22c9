-- rueidislock_extend: a new deadline for a rueidislock.
-- KEYS        all keys that the lock may have
-- ARGV[1]     the token that was seen in most of those that are there
-- ARGV[#ARGV] time to live from now, ms
-- Returns 1 if any still had it; all that had have the deadline now. Else 0.
local extended = 0
for i = 1, #KEYS do
  if redis.pcall('GET', KEYS[i]) == ARGV[1] then
    redis.call('PEXPIRE', KEYS[i], ARGV[#ARGV])
    extended = 1
  end
end
return extended
