-- keys_extend: set a new deadline of holds of a lock that has a key for each.
-- ARGV[#ARGV] time to live from now, ms
-- Returns 1 if the holds were unchanged and have the new deadline, else 0.
for i = 1, #KEYS do
  redis.call('PEXPIRE', KEYS[i], ARGV[#ARGV])
end
return 1
