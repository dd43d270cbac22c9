-- quorum_semaphore_take: take a permit of one server.
-- KEYS[1]  the semaphore: a zset of token → time of the acquire, ms on the client's clock
-- ARGV[1]  token of the client
-- ARGV[2]  now, ms on the client's clock
-- ARGV[3]  time to live, ms
-- ARGV[4]  number of permits
-- Returns 1 if the server has granted a permit, 0 if all are taken.
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', ARGV[2] - ARGV[3])
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[4]) then
  return 0
end
redis.call('ZADD', KEYS[1], ARGV[2], ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return 1
