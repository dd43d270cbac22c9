-- rw_release: leave the lock, and wake the waiters that may get it.
-- ARGV[3]  new count; 0 = the token leaves
-- ARGV[4]  channel of waiting writers
-- ARGV[5]  channel of waiting readers
-- Returns nil if the token does not hold the lock, 1 if it has left, 0 if it has entries
-- left. When memory is full, the new count is not written. It then stays too high until
-- the last release.
local deadline, rest = hold(redis.call('HGET', key, field))
if rest ~= tail then
  return nil
end
if ARGV[3] ~= '0' then
  redis.pcall('HSET', key, field, ARGV[3] .. ':' .. deadline .. tail)
  return 0
end
if mode == 'w' then
  writer_left()
else
  redis.call('HDEL', key, field)
end
if settle() or mode == 'w' then
  redis.pcall('PUBLISH', ARGV[4], key)
end
if mode == 'w' then
  redis.pcall('PUBLISH', ARGV[5], key)
end
return 1
