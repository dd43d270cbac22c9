-- rw_release: leave the lock, and wake who may get in.
-- ARGV[3]  what the count becomes; 0 = the token is gone
-- ARGV[4]  channel on which writers listen
-- ARGV[5]  channel on which readers listen
-- Returns nil if the token was not there, 1 if it is gone now, 0 if it has
-- entries left. When memory is full the count cannot be written; it stays too
-- high, and the last release makes up for it.
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
