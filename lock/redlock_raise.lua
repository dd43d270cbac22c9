-- redlock_raise: set the fence counter to a number unless it is larger.
-- KEYS[1]  the counter
-- ARGV[1]  the number
-- Returns 1.
local count = tonumber(redis.call('GET', KEYS[1]))
if not count or count < tonumber(ARGV[1]) then
  redis.call('SET', KEYS[1], ARGV[1])
end
return 1
