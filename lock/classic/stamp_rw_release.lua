-- stamp_rw_release: give a side of the lock back, if the stamp is ours.
-- KEYS[1]  the lock
-- ARGV[1]  the side
-- ARGV[2]  our stamp
-- Returns 1 if the side was deleted, 0 if its stamp is not ours.
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then
  return 0
end
return redis.call('HDEL', KEYS[1], ARGV[1])
