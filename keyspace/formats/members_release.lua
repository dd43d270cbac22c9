-- members_release: end holds of a lock that is a collection of its holders.
-- Returns 1 if all holders were still there and are removed, else 0.
local remove = { ZSCORE = 'ZREM', SISMEMBER = 'SREM', HEXISTS = 'HDEL' }
redis.call(remove[ARGV[1]], KEYS[1], unpack(seen))
return 1
