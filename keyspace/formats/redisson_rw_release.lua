-- redisson_rw_release: end holds of an RReadWriteLock.
-- ARGV[#ARGV]  channel of all waiters
-- Returns 1 if the holds were unchanged and are released, else 0.
redis.call('HDEL', KEYS[1], unpack(seen))
for i = 2, #KEYS do
  redis.call('DEL', KEYS[i])
end
local left = redis.call('HKEYS', KEYS[1])
local writes = false
for _, field in ipairs(left) do
  writes = writes or string.sub(field, -6) == ':write'
end
if writes then
  return 1
end
if #left <= 1 then -- only the mode
  redis.call('DEL', KEYS[1])
else
  redis.call('HSET', KEYS[1], 'mode', 'read')
end
redis.pcall('PUBLISH', ARGV[#ARGV], '1') -- 1 wakes all waiters, 0 only one
redis.pcall('SPUBLISH', ARGV[#ARGV], '1') -- in a cluster of Redis 7, the channels are sharded
return 1
