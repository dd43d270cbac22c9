-- rw_withdraw: a writer that gave up waiting holds nobody off any longer.
-- ARGV[2]  its id
-- ARGV[3]  channel on which writers listen
-- ARGV[4]  channel on which readers listen
-- Returns 1 if it was the one that was next, 0 if not.
local _, next_writer = claim(redis.call('HGET', key, 'q'))
if not next_writer or not same(next_writer, token) then
  return 0
end
redis.call('HDEL', key, 'q')
settle()
redis.pcall('PUBLISH', ARGV[3], key)
redis.pcall('PUBLISH', ARGV[4], key)
return 1
