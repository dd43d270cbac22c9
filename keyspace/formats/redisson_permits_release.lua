-- redisson_permits_release: release permits of an RPermitExpirableSemaphore.
-- KEYS[1]     the permits in use: a zset of id → deadline in ms
-- KEYS[2]     number of free permits
-- ARGV[#ARGV] channel of the waiters
-- Returns 1 if all permits were still in use and are released, else 0.
redis.call('ZREM', KEYS[1], unpack(seen))
redis.call('INCRBY', KEYS[2], #seen)
redis.pcall('PUBLISH', ARGV[#ARGV], #seen)
redis.pcall('SPUBLISH', ARGV[#ARGV], #seen) -- in a cluster of Redis 7, the channels are sharded
return 1
