-- redlock_raise: set the fence counter to a number unless it is larger.
-- KEYS[1]  the counter
-- ARGV[1]  the number
-- Returns 1, or an error if the key holds anything else than a number.
local value = redis.call('GET', KEYS[1])
local count = tonumber(value or 0)
if not count then
  return redis.error_reply('ERR the counter is not a number')
end
if count < tonumber(ARGV[1]) then
  redis.call('SET', KEYS[1], ARGV[1])
end
return 1
