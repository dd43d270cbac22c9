-- mutex_peek: who holds the lock. Nothing is changed.
-- KEYS[1]  the lock
-- Returns {token of the holder, its PTTL}; the token is empty if nobody does.
local holder = redis.call('GET', KEYS[1])
return {string.sub(holder or '', 1, 512), redis.call('PTTL', KEYS[1])}
