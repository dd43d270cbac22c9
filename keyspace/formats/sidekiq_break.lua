-- sidekiq_break: end holds of a lock of sidekiq-unique-jobs. Its waiters block on
-- the list of those that are queued.
-- KEYS[1]  the jobs that hold: a hash
-- KEYS[2]  the list of those that are queued
-- KEYS[3]  the digest,
-- KEYS[4]  those that are primed, and
-- KEYS[5]  what is noted of it
-- KEYS[6]  all digests: a zset
-- ARGV     jobs that were seen
-- Returns 1 if all were still there and are gone now, else 0.
for i = 1, #ARGV do
  if redis.pcall('HEXISTS', KEYS[1], ARGV[i]) ~= 1 then
    return 0
  end
end
redis.call('HDEL', KEYS[1], unpack(ARGV))
if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('DEL', KEYS[3], KEYS[4], KEYS[5])
  redis.pcall('ZREM', KEYS[6], KEYS[3])
end
redis.call('LPUSH', KEYS[2], '1')
redis.call('PEXPIRE', KEYS[2], 5000)
return 1
