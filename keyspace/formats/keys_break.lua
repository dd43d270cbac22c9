-- keys_break: end holds of a lock that has a key for each.
-- Returns 1 if all were still there as they were seen and are gone now, else 0.
redis.call('DEL', unpack(KEYS))
return 1
