-- locktop_semaphore_check: continue only if all permits are still in use. Stands before
-- the other scripts of locktop's Semaphore.
-- KEYS[1]  the permits: a zset of token → deadline in ms, and locktop-limit:<n> → +inf
-- ARGV[1]  channel of the lock
-- ARGV[2…] the tokens, as last read; an extend has one more argument
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local function in_use(token)
  local deadline = redis.pcall('ZSCORE', KEYS[1], token)
  return type(deadline) == 'string' and tonumber(deadline) > now
end

-- expire makes the key expire with the last permit.
local function expire()
  local last = tonumber(redis.call('ZRANGE', KEYS[1], -2, -2, 'WITHSCORES')[2] or 0)
  if last > now then
    redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', last))
  else
    redis.call('DEL', KEYS[1])
  end
end
