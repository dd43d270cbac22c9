-- rw_forget: a reader that was refused waits no longer. If no other was refused after it, a
-- writer that leaves need not let readers go first. Other readers that wait ask again.
-- ARGV[3]  its ticket
-- ARGV[4]  channel of waiting readers
local f = redis.call('HMGET', key, 'v', 's')
if f[1] == format and f[2] == ARGV[3] then
  redis.call('HDEL', key, 's')
  redis.pcall('PUBLISH', ARGV[4], key)
end
return 1
