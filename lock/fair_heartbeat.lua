-- fair_heartbeat: keep waiters in the queue; hand a free lock to the first of them.
-- ARGV[4]  how long a waiter stays in the queue without a heartbeat, ms
-- ARGV[5…] tokens of the waiters
-- Returns the tokens that are not in the queue: they were handed the lock, or counted
-- as dead.
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
