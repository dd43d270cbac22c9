-- keys_release: end holds of a lock that has a key for each.
-- Returns 1 if the holds were unchanged and are released, else 0.
redis.call('DEL', unpack(KEYS))
return 1
