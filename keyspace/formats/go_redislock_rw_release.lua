-- go_redislock_rw_release: end holds of a read/write lock of go-redislock.
-- Returns 1 if the holds were unchanged and are released, else 0.
for i = 2, 3 * ARGV[1], 3 do
  if ARGV[i] == 'read' then
    redis.call('HDEL', KEYS[1], 'r:' .. ARGV[i + 1])
    redis.call('HINCRBY', KEYS[1], 'rcount', -ARGV[i + 2])
  else
    redis.call('HDEL', KEYS[1], 'writer', 'wcount')
  end
end
if redis.call('HEXISTS', KEYS[1], 'writer') == 1 then
  return 1
end
if tonumber(redis.call('HGET', KEYS[1], 'rcount') or '0') <= 0 then
  redis.call('DEL', KEYS[1])
else
  redis.call('HSET', KEYS[1], 'mode', 'read')
end
return 1
