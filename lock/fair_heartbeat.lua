-- fair_heartbeat: a sign of life of waiters; a lock that is free goes to the first.
-- ARGV[4]  how long a waiter lives without a sign of life, ms
-- ARGV[5…] their tokens
-- Returns the tokens that are not in the queue: their turn came, or they were
-- taken for dead.
local time = redis.call('TIME')
local gone = time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[4]
local missing = {}
for i = 5, #ARGV do
  if redis.call('ZSCORE', KEYS[2], ARGV[i]) then
    redis.pcall('ZADD', KEYS[3], gone, ARGV[i])
  else
    missing[#missing + 1] = ARGV[i]
  end
end
redis.call('PEXPIRE', KEYS[2], ARGV[4] * 2)
redis.call('PEXPIRE', KEYS[3], ARGV[4] * 2)
if redis.call('EXISTS', KEYS[1]) == 0 then
  serve()
end
return missing
