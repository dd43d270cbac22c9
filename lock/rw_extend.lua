-- rw_extend: set the time to live of a reader or the writer.
-- ARGV[3]  time to live from now, ms
-- Returns 1, or 0 if the token does not hold the lock. A lost hold is not created again,
-- and no other deadline changes. Works when memory is full: a script whose first write
-- takes no memory may write on.
local value = redis.call('HGET', key, field)
local deadline, rest = hold(value)
if rest ~= tail then
  return 0
end
redis.call('PEXPIRE', key, math.max(redis.call('PTTL', key), ARGV[3]))
redis.call('HSET', key, field, string.match(value, '^%d+') .. ':' .. now + ARGV[3] .. tail)
return 1
