-- reentrant_peek: get the holder. Changes nothing.
-- KEYS[1]  the lock
-- Returns {token of the holder, its PTTL}; the token is empty if the lock is free.
local holder = redis.call('HKEYS', KEYS[1])[1]
return {holder or '', redis.call('PTTL', KEYS[1])}
