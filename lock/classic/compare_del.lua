-- compare_del: delete the lock if it holds our token.
-- KEYS[1]  the lock
-- ARGV[1]  our token
-- Returns 1 if it was deleted, 0 if it is not ours.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
return redis.call('DEL', KEYS[1])
