-- redisson_rw_extend: a new deadline for holds of an RReadWriteLock.
-- ARGV[#ARGV]  time to live from now, ms
-- Returns 1 if all were still there as they were seen and have it now, else 0.
-- The lock itself lives as long as the longest of its holds.
local ttl = tonumber(ARGV[#ARGV])
for i = 2, #KEYS do
  redis.call('PEXPIRE', KEYS[i], ttl)
end
local left = redis.call('PTTL', KEYS[1])
if left < 0 or #seen == redis.call('HLEN', KEYS[1]) - 1 or left < ttl then
  redis.call('PEXPIRE', KEYS[1], ttl)
end
return 1
