-- rw_withdraw: end the claim, or the registration, of a writer that has stopped waiting.
-- ARGV[1]  its process
-- ARGV[2]  channel of waiting readers
-- ARGV[3…] of waiting writers: see waiters_release
-- Returns 1, 2 if also a writer was woken that is of the caller's own process, or 0 if
-- the claim is another one.
if ARGV[6] then
  redis.pcall('ZREM', waiters_of(ARGV[3]), ARGV[6])
end
local f = redis.call('HMGET', key, 'v', 'q')
local _, next_writer = claim(f[1] == format and f[2])
if not next_writer or not same(next_writer, ARGV[1]) then
  return 0
end
redis.call('HDEL', key, 'q')
local _, ours = settle(3, true)
redis.pcall('PUBLISH', ARGV[2], key)
return ours and 2 or 1
