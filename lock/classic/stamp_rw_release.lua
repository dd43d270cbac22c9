-- stamp_rw_release: release a side of the lock if it has the stamp.
-- KEYS[1]  the lock
-- ARGV[1]  the side
-- ARGV[2]  stamp of the holder
-- Returns 1 if the side was deleted, 0 if it has another stamp.
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then
  return 0
end
return redis.call('HDEL', KEYS[1], ARGV[1])
