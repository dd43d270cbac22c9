-- semaphore_release: release a permit and, if one is free then, wake a waiter.
-- ARGV[1]  token of the holder
-- ARGV[2]  limit of the caller, for a permit that is handed over when none is stored
-- ARGV[3…] see waiters_release
-- Returns nil if the token has no permit; else what release returns.
-- Works when memory is full: a script whose first write is allowed then may write on.
local function hand(token, ms)
  local last, limit = ends()
  store(token, ms, limit or ARGV[2], last, limit)
end
if not holds(ARGV[1]) then
  return give_up(3, is_free, hand, expire, 'more')
end
redis.call('ZREM', KEYS[1], ARGV[1])
local last, limit = ends()
if last <= now or permits() < tonumber(limit) then
  return release(3, hand, function() expire_at(last) end)
end
-- A lowered limit: no waiter may try. The message tells observers of the release.
expire_at(last)
if ARGV[3] ~= '' then
  redis.pcall('PUBLISH', ARGV[3] .. ':' .. string.sub(ARGV[4] or '', -12), 'own')
end
return 1
