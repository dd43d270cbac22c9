-- locktop_rw_extend: set a new deadline of holds of locktop's RW.
-- ARGV[#ARGV]  time to live from now, ms
-- Returns 1 if the holds were unchanged and have the new deadline, else 0.
local ttl = tonumber(ARGV[#ARGV])
for _, hold in ipairs(seen) do
  redis.call('HSET', KEYS[1], hold.field, hold.count .. ':' .. now + ttl .. hold.behind)
end
if redis.call('PTTL', KEYS[1]) < ttl then
  redis.call('PEXPIRE', KEYS[1], ttl)
end
return 1
