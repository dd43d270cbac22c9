-- redisson_permits_break: give back permits of an RPermitExpirableSemaphore.
-- KEYS[1]     the permits that are out: a zset of id → deadline in ms
-- KEYS[2]     how many are left
-- ARGV[#ARGV] channel on which waiters listen
-- Returns 1 if all were still out and are back now, else 0.
redis.call('ZREM', KEYS[1], unpack(seen))
redis.call('INCRBY', KEYS[2], #seen)
redis.pcall('PUBLISH', ARGV[#ARGV], #seen)
return 1
