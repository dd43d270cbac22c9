-- mutex_peek: get the holder. Changes nothing.
-- KEYS[1]  the lock
-- Returns {token of the holder, its PTTL}; nil if the lock is free.
local holder = redis.call('GET', KEYS[1])
return holder and {string.sub(holder, 1, 512), redis.call('PTTL', KEYS[1])}
