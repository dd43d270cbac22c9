-- stamp_rw_take: acquire a side of the lock, unless a side is held that excludes it.
-- KEYS[1]  the lock: a hash of side → time of the acquire, ms on the client's clock
-- ARGV[1]  the side
-- ARGV[2]  now, ms on the client's clock
-- ARGV[3]  how long the side lasts, ms; the hash expires after this time
-- ARGV[4…] the sides that exclude it, each followed by how long it lasts
-- Returns 1 if the side is acquired, 0 if the lock is held.
for i = 4, #ARGV, 2 do
  local stamp = redis.call('HGET', KEYS[1], ARGV[i])
  if stamp and ARGV[2] - stamp <= tonumber(ARGV[i + 1]) then
    return 0
  end
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return 1
