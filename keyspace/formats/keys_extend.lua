-- keys_extend: a new deadline for holds of a lock that has a key for each.
-- ARGV[#ARGV] time to live from now, ms
-- Returns 1 if all were still there as they were seen and have it now, else 0.
for i = 1, #KEYS do
  redis.call('PEXPIRE', KEYS[i], ARGV[#ARGV])
end
return 1
