-- semaphore_extend: set the deadline of a permit if it is in use.
-- ARGV[1]  token of the holder
-- ARGV[2]  time to live from now, ms
-- Returns 1, or 0 if the token has no permit. A lost permit is not created again. Works
-- when memory is full: a script whose first write is allowed then may write on.
if not holds(ARGV[1]) then
  return 0
end
redis.call('PEXPIRE', KEYS[1], math.max(redis.call('PTTL', KEYS[1]), ARGV[2]))
redis.call('ZADD', KEYS[1], string.format('%.0f', now + ARGV[2]), ARGV[1])
expire()
return 1
