-- rw_extend: a new time to live for a reader or the writer, if it is still there.
-- ARGV[3]  time to live from now, ms
-- Returns 1 if the token was there, 0 if not: a lost hold is never made anew.
-- Nobody else's deadline changes. Runs also when memory is full: a script whose
-- first write takes no memory may go on writing.
local value = redis.call('HGET', key, field)
local deadline, rest = hold(value)
if rest ~= tail then
  return 0
end
redis.call('PEXPIRE', key, math.max(redis.call('PTTL', key), ARGV[3]))
redis.call('HSET', key, field, string.match(value, '^%d+') .. ':' .. now + ARGV[3] .. tail)
return 1
