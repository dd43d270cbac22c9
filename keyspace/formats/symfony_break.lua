-- symfony_break: end holds of a lock of symfony/lock; the mark of a writer is one
-- of those seen. Its key expires with the last of those that are left.
-- Returns 1 if all were still there and are gone now, else 0.
redis.call('ZREM', KEYS[1], unpack(seen))
local last = redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')[2]
if last then
  redis.call('PEXPIREAT', KEYS[1], math.ceil(last))
end
return 1
