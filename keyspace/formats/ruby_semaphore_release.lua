-- ruby_semaphore_release: release tokens of Ruby's redis-semaphore. Its waiters
-- block on the list of the free tokens.
-- KEYS[1]  the tokens in use: a hash of token → time of the acquire, in s
-- KEYS[2]  the free tokens
-- ARGV     token, time of the acquire in ms or 0, token, …, as last read
-- Returns 1 if all tokens were still in use since then and are released, else 0.
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
