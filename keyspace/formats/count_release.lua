-- count_release: end holds of a lock that is a hash of holder → count.
-- KEYS[1]  the lock
-- ARGV[1]  channel of the waiters; empty = they poll
-- ARGV[2]  the message that they expect
-- ARGV[3…] holder, count, holder, count …, as last read
-- Returns 1 if the holds were unchanged and are released, else 0.
for i = 3, #ARGV, 2 do
  if redis.pcall('HGET', KEYS[1], ARGV[i]) ~= ARGV[i + 1] then
    return 0
  end
end
for i = 3, #ARGV, 2 do
  redis.call('HDEL', KEYS[1], ARGV[i])
end
if ARGV[1] ~= '' and redis.call('EXISTS', KEYS[1]) == 0 then
  redis.pcall('PUBLISH', ARGV[1], ARGV[2])
end
return 1
