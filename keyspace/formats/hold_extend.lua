-- hold_extend: a new deadline for a lock whose holders share one.
-- KEYS[1]     the lock
-- ARGV[#ARGV] time to live from now, ms
-- Returns 1 if all were still there and have the deadline now, else 0.
return redis.call('PEXPIRE', KEYS[1], ARGV[#ARGV])
