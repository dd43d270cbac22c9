-- rw_withdraw: end the claim of a writer that has stopped waiting.
-- ARGV[2]  id of the claim
-- ARGV[3]  channel of waiting writers
-- ARGV[4]  channel of waiting readers
-- Returns 1, or 0 if the claim is another one.
local _, next_writer = claim(redis.call('HGET', key, 'q'))
if not next_writer or not same(next_writer, token) then
  return 0
end
redis.call('HDEL', key, 'q')
settle()
redis.pcall('PUBLISH', ARGV[3], key)
redis.pcall('PUBLISH', ARGV[4], key)
return 1
