-- two_key_rw_read: let a reader in unless there is a writer.
-- KEYS[1]  the readers' key
-- KEYS[2]  the writer's key
-- ARGV[1]  time to live, ms
-- Returns 1 if the lock is ours now, 0 if it is held.
if redis.call('EXISTS', KEYS[2]) == 1 then
  return 0
end
redis.call('SET', KEYS[1], '1', 'PX', ARGV[1])
return 1
