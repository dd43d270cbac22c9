-- members_release: end holds of a lock that is a collection of its holders.
-- ARGV[3 + number of holders]  channel of the waiters; absent = they poll
-- Returns 1 if all holders were still there and are removed, else 0.
local remove = { ZSCORE = 'ZREM', SISMEMBER = 'SREM', HEXISTS = 'HDEL' }
redis.call(remove[ARGV[1]], KEYS[1], unpack(seen))
if ARGV[3 + ARGV[2]] then
  redis.pcall('PUBLISH', ARGV[3 + ARGV[2]], #seen)
end
return 1
