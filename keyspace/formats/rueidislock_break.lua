-- rueidislock_break: end the hold of a rueidislock, which is several keys with
-- one token. Waiters and the holder learn of it by client tracking.
-- KEYS     all keys that the lock may have
-- ARGV[1]  the token that was seen in most of those that are there
-- Returns 1 if any still had it and none has now, else 0.
local ended = 0
for i = 1, #KEYS do
  if redis.pcall('GET', KEYS[i]) == ARGV[1] then
    redis.call('DEL', KEYS[i])
    ended = 1
  end
end
return ended
