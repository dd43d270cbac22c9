-- locktop_rw_extend: a new deadline for holds of an RW of ours.
-- ARGV[#ARGV]  time to live from now, ms
-- Returns 1 if all were still there as they were seen and have it now, else 0.
local ttl = tonumber(ARGV[#ARGV])
for _, hold in ipairs(seen) do
  redis.call('HSET', KEYS[1], hold.field, hold.count .. ':' .. now + ttl .. hold.behind)
end
if redis.call('PTTL', KEYS[1]) < ttl then
  redis.call('PEXPIRE', KEYS[1], ttl)
end
return 1
