-- two_key_rw_write: acquire the write side unless the lock is held.
-- KEYS[1]  the readers' key
-- KEYS[2]  the writer's key
-- ARGV[1]  time to live, ms
-- Returns 1 if the side is acquired, 0 if the lock is held.
if redis.call('EXISTS', KEYS[1]) == 1 then
  return 0
end
if redis.call('SET', KEYS[2], '1', 'NX', 'PX', ARGV[1]) then
  return 1
end
return 0
