-- stamp_rw_take: take a side of the lock, unless a side is held that excludes it.
-- KEYS[1]  the lock: a hash of side → when it was taken, ms on the taker's clock
-- ARGV[1]  the side
-- ARGV[2]  now, ms on our clock
-- ARGV[3]  time to live, ms
-- ARGV[4…] the sides that exclude ours
-- Returns 1 if the lock is ours now, 0 if it is held.
for i = 4, #ARGV do
  local stamp = redis.call('HGET', KEYS[1], ARGV[i])
  if stamp and stamp + ARGV[3] > tonumber(ARGV[2]) then
    return 0
  end
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return 1
