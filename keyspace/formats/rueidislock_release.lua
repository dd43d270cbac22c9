-- rueidislock_release: end the hold of a rueidislock, which is several keys with
-- one token. Waiters and the holder are notified by client tracking.
-- KEYS     all keys that the lock may have
-- ARGV[1]  the token in most of the existing keys, as last read
-- Returns 1 if any key still had the token and none has it now, else 0.
local ended = 0
for i = 1, #KEYS do
  if redis.pcall('GET', KEYS[i]) == ARGV[1] then
    redis.call('DEL', KEYS[i])
    ended = 1
  end
end
return ended
