-- reentrant_peek: get the holder. Changes nothing.
-- KEYS[1]  the lock
-- Returns {token of the holder, its PTTL}; nil if the lock is free.
local holder = holder_of(KEYS[1])
if holder == false then
  return not_a_lock
end
return holder and {holder, redis.call('PTTL', KEYS[1])}
