-- reentrant_peek: who holds the lock. Nothing is changed.
-- KEYS[1]  the lock
-- Returns {token of the holder, its PTTL}; the token is empty if nobody does.
local holder = redis.call('HKEYS', KEYS[1])[1]
return {holder or '', redis.call('PTTL', KEYS[1])}
