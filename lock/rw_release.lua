-- rw_release: leave the lock, and wake the waiters that may get it: of the writers the
-- one that is next, and when a writer leaves all readers, because all of them may enter.
-- ARGV[3]  new count; 0 = the token leaves
-- ARGV[4]  channel of waiting readers
-- ARGV[5…] of waiting writers: see waiters_release
-- Returns nil if the token does not hold the lock, 1 if it has left, 2 if also a writer
-- was woken that is of the caller's own process, or 0 if it has entries left. When memory is full, the new count is not written. It then stays too high until
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
local _, ours = settle(5, mode == 'w')
if mode == 'w' then
  redis.pcall('PUBLISH', ARGV[4], key)
end
return ours and 2 or 1
