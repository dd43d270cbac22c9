-- redisson_rw_extend: set a new deadline of holds of an RReadWriteLock.
-- ARGV[#ARGV]  time to live from now, ms
-- Returns 1 if the holds were unchanged and have the new deadline, else 0.
-- The lock expires with the last of its holds.
local ttl = tonumber(ARGV[#ARGV])
for i = 2, #KEYS do
  redis.call('PEXPIRE', KEYS[i], ttl)
end
local left = redis.call('PTTL', KEYS[1])
if left < 0 or #seen == redis.call('HLEN', KEYS[1]) - 1 or left < ttl then
  redis.call('PEXPIRE', KEYS[1], ttl)
end
return 1
