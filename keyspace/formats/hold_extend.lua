-- hold_extend: set a later deadline of a lock whose holders share one.
-- KEYS[1]     the lock
-- ARGV[#ARGV] time to live from now, ms
-- Returns 1 if all holders were still there and have the new deadline, else 0.
return extend(KEYS[1])
