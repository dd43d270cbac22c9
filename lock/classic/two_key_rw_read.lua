-- two_key_rw_read: acquire the read side unless there is a writer.
-- KEYS[1]  the readers' key
-- KEYS[2]  the writer's key
-- ARGV[1]  time to live, ms
-- Returns 1 if the side is acquired, 0 if the lock is held.
if redis.call('EXISTS', KEYS[2]) == 1 then
  return 0
end
redis.call('SET', KEYS[1], '1', 'PX', ARGV[1])
return 1
