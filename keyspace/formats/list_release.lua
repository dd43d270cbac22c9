-- list_release: end the hold of a lock whose waiters block on a list beside it.
-- KEYS[1]  the lock
-- KEYS[2]  the list
-- ARGV[1]  the token, as last read
-- ARGV[2]  how long the list exists if no waiter takes from it, ms; 0 = no limit
-- Returns 1 if the hold was unchanged and is released, else 0.
if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
redis.call('DEL', KEYS[1], KEYS[2])
redis.call('RPUSH', KEYS[2], '1')
if ARGV[2] ~= '0' then
  redis.call('PEXPIRE', KEYS[2], ARGV[2])
end
return 1
