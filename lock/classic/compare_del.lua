-- compare_del: delete the lock if it has the token.
-- KEYS[1]  the lock
-- ARGV[1]  token of the holder
-- Returns 1 if the lock was deleted, 0 if it has another token.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
return redis.call('DEL', KEYS[1])
