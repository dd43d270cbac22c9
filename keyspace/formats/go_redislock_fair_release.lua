-- go_redislock_fair_release: end the hold of a fair lock of go-redislock. The
-- holder stays in the queue during its hold.
-- KEYS[1]  the lock
-- KEYS[2]  its queue: a zset of requests
-- ARGV[1]  the request that held it when it was last read
-- Returns 1 if the hold was unchanged and is released, else 0.
if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
redis.call('DEL', KEYS[1])
redis.pcall('ZREM', KEYS[2], ARGV[1])
return 1
