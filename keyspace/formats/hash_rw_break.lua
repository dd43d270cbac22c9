-- hash_rw_break: end holds of a lock that is a hash of mode → owner.
-- Returns 1 if all were still there as they were seen and are gone now, else 0.
redis.call('HDEL', KEYS[1], unpack(fields))
return 1
