-- hash_rw_release: end holds of a lock that is a hash of mode → owner.
-- Returns 1 if the holds were unchanged and are released, else 0.
redis.call('HDEL', KEYS[1], unpack(fields))
return 1
