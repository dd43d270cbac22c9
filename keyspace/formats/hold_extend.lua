-- hold_extend: set a new deadline of a lock whose holders share one.
-- KEYS[1]     the lock
-- ARGV[#ARGV] time to live from now, ms
-- Returns 1 if all holders were still there and have the new deadline, else 0.
return redis.call('PEXPIRE', KEYS[1], ARGV[#ARGV])
