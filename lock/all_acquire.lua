-- all_acquire: acquire all locks if each of them is free; else a waiter registers.
-- KEYS[i]  the locks, each a string as that of a mutex. A waiter waits for the first one.
-- ARGV[1]  token of this attempt
-- ARGV[2]  time to live, ms
-- ARGV[3…] of a waiter: see waiters_acquire
-- Returns 0 if the token holds all locks now. Otherwise it has acquired none, and
-- returns {token of a holder, its PTTL}. If the held lock is KEYS[1], its ticket and the
-- number of members before it follow if the waiter has registered. If it is another one,
-- its index in KEYS follows.
-- Repeating the call with the same token is harmless: the token keeps the locks.
for i, key in ipairs(KEYS) do
  local holder = redis.call('GET', key)
  if holder and holder ~= ARGV[1] then
    if i == 1 then
      return refused(holder, 3)
    end
    return {string.sub(holder, 1, 512), redis.call('PTTL', key), i} -- a foreign value may be long
  end
end
for i, key in ipairs(KEYS) do
  local try = i == 1 and redis.call or redis.pcall -- if the first one fails, nothing is written
  local set = try('SET', key, ARGV[1], 'PX', ARGV[2])
  if set.err then -- the user may lack the permission to write this key
    for k = 1, i - 1 do
      redis.call('DEL', KEYS[k])
    end
    return set
  end
end
acquired(3)
return 0
