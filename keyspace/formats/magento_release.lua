-- magento_release: end the hold of a session of Cm_RedisSession. The session stays.
-- KEYS[1]  the session: a hash
-- ARGV[1]  the process that held it when it was last read
-- Returns 1 if the hold was unchanged and is released, else 0.
if redis.pcall('HGET', KEYS[1], 'pid') ~= ARGV[1] or tonumber(redis.pcall('HGET', KEYS[1], 'lock') or '0') < 1 then
  return 0
end
redis.call('HSET', KEYS[1], 'lock', '0')
return 1
