-- mutex_peek: get the holder. Changes nothing.
-- KEYS[1]  the lock
-- Returns {token of the holder, its PTTL}; the token is empty if the lock is free.
local holder = redis.call('GET', KEYS[1])
return {string.sub(holder or '', 1, 512), redis.call('PTTL', KEYS[1])}
