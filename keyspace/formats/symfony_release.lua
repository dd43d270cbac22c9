-- symfony_release: end holds of a lock of symfony/lock; the mark of a writer counts
-- as a holder. The key expires with the last remaining holder.
-- Returns 1 if all holders were still there and are removed, else 0.
redis.call('ZREM', KEYS[1], unpack(seen))
local last = redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')[2]
if last then
  redis.call('PEXPIREAT', KEYS[1], math.ceil(last))
end
return 1
