-- semaphore_acquire: acquire a permit if one is free; else a waiter registers.
-- ARGV[1]  token of this attempt
-- ARGV[2]  time to live, ms
-- ARGV[3]  limit of the caller
-- ARGV[4]  key of the limit that SetLimit has stored, which counts instead; empty = none.
--          It is not one of KEYS: a user without permission for it uses ARGV[3].
-- ARGV[5…] of a waiter: see waiters_acquire. Two more letters: m if the waiter must wake
--          the next one if permits are left, c if PUBLISH returns the number of
--          subscribers
-- Returns 0 if the token has a permit now. A waiter
-- gets {0, next, ms until the nearest deadline}. next is the token to which a permit was handed, 3 if a waiter of the caller's process must try, or
-- else 1.
-- Otherwise returns {token of the permit whose deadline makes one free, the ms until
-- then} and, if the waiter has registered, its ticket, the number of members before it,
-- and the ms until a permit is free for it if no holder releases one. If more wait than
-- there are permits, this is after the end of the last permit, one waiter after the
-- other: the waiters before it may have got their permits meanwhile, and a member that is
-- the first now learns this only by asking.
-- Repeating the call with the same token is harmless: the token keeps its permit.
local last, old = ends()
if old == false then
  return not_a_lock
end
local limit = stored_limit(ARGV[4]) or ARGV[3]
local in_use = old and permits() or 0
if old and holds(ARGV[1]) then -- handed over, or asked again: works when memory is full
  redis.call('PEXPIRE', KEYS[1], math.max(redis.call('PTTL', KEYS[1]), ARGV[2]))
elseif in_use < tonumber(limit) then
  in_use = in_use + 1
else
  local excess = in_use - limit -- after SetLimit has lowered the limit
  local reply = {permit(excess)}
  if ARGV[5] then
    local ticket, ahead = register(ARGV[5], ARGV[6], ARGV[7], true)
    if ticket then
      local _, ms = permit(excess + ahead)
      reply[3], reply[4], reply[5] = ticket, ahead, ms or last - now + 100 * (excess + ahead - in_use + 1)
    end
  end
  return reply
end

store(ARGV[1], ARGV[2], limit, last, old)
local first = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
if tonumber(first[2]) <= now then
  local dead = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now), 'LIMIT', 0, 100)
  redis.call('ZREM', KEYS[1], unpack(dead))
end
local registered = acquired(5)
if not ARGV[5] then
  return 0
end
local next = 1
if in_use < tonumber(limit) and ARGV[9] and not registered then
  next = 3 -- no message can wake the other waiters of the process
elseif in_use < tonumber(limit) and string.find(ARGV[8], 'm') then
  local woken, ours = wake_one(ARGV[5], ARGV[6], string.find(ARGV[8], 'c') and '1' or '0', 'more')
  if woken and is_token(woken) then
    store(woken, 1000, limit, ends())
    next = woken
  elseif ours then
    next = 3
  end
end
local _, nearest = permit(0)
return {0, next, nearest}
