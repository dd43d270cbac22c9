-- fair_beat: a sign of life of waiters.
-- KEYS[1]  queue: zset of token → ticket
-- KEYS[2]  alive: zset of token → ms at which the waiter counts as gone
-- ARGV[1]  how long a waiter lives without a sign of life, ms
-- ARGV[2…] their tokens
-- Returns the tokens that are not in the queue: their turn came, or they were
-- taken for dead.
local time = redis.call('TIME')
local gone = time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[1]
local missing = {}
for i = 2, #ARGV do
  if redis.call('ZSCORE', KEYS[1], ARGV[i]) then
    redis.pcall('ZADD', KEYS[2], gone, ARGV[i])
  else
    missing[#missing + 1] = ARGV[i]
  end
end
redis.call('PEXPIRE', KEYS[1], ARGV[1] * 2)
redis.call('PEXPIRE', KEYS[2], ARGV[1] * 2)
return missing
