-- sidekiq_release: end holds of a lock of sidekiq-unique-jobs. Its waiters block on
-- the list of the queued jobs.
-- KEYS[1]  the jobs that hold it: a hash
-- KEYS[2]  the list of the queued jobs
-- KEYS[3]  the digest,
-- KEYS[4]  the primed jobs, and
-- KEYS[5]  the information about it
-- KEYS[6]  all digests: a zset
-- ARGV     the jobs that held it when it was last read
-- Returns 1 if all holders were still there and are removed, else 0.
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
