-- ruby_semaphore_break: give back tokens of Ruby's redis-semaphore. Its waiters
-- block on the list of those that are left.
-- KEYS[1]  the tokens that are out: a hash of token → when it was taken, in s
-- KEYS[2]  those that are left
-- ARGV     token, when it was taken in ms or 0, token, … as they were seen
-- Returns 1 if all were still out since then and are back now, else 0.
for i = 1, #ARGV, 2 do
  local since = redis.pcall('HGET', KEYS[1], ARGV[i])
  if not since or type(since) == 'table' then
    return 0
  end
  if ARGV[i + 1] ~= '0' and math.abs(since * 1000 - ARGV[i + 1]) >= 2 then
    return 0
  end
end
for i = 1, #ARGV, 2 do
  redis.call('HDEL', KEYS[1], ARGV[i])
  redis.call('LPUSH', KEYS[2], ARGV[i])
end
return 1
