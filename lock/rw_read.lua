-- rw_read: acquire the read lock, or enter it again.
-- KEYS[2]  fence counter; absent if the lock is not fenced
-- ARGV[3]  time to live, ms
-- ARGV[4]  new count; with more than 1 the token must hold the lock already
-- ARGV[5]  token of the owner's own write lock, which does not keep the owner out
-- ARGV[6]  ticket: when the owner was first refused, as such a refusal returned it; 0 = it
--          was not; -1 = it does not wait
-- Returns the fencing token of the last writer (0 without a fence) if the token holds
-- the read lock now. Otherwise returns {token of the holder or of the waiting writer,
-- ms until its deadline} and, if the owner waits, its ticket, in ms of the server's clock.
-- Repeating the call with the same token is harmless.
local count, ticket = tonumber(ARGV[4]), tonumber(ARGV[6])
local f = redis.call('HMGET', key, 'v', 'w', 'q', 's', 't', field)
if foreign(f[1]) then
  return not_a_lock
end

if ticket > now then -- the clock was set back since then
  ticket = 1
end

local function refused(who, deadline)
  if ticket < 0 then
    return {who, deadline - now}
  end
  local since, last = ticket > 0 and ticket or now, tonumber(f[4] or 0)
  if last < since or last > now then
    redis.pcall('HSET', key, 's', since)
  end
  return {who, deadline - now, since}
end

local turn = false
if not hold(f[6]) then
  if count > 1 then
    return {'', 0}
  end
  local deadline, writer = hold(f[2])
  if deadline and writer ~= ':' .. ARGV[5] then
    return refused(string.sub(writer, 2), deadline)
  end
  if not deadline then
    turn = f[2] and writer_left() or f[5]
    local left = tonumber(string.match(turn or '', ':(%d+)$') or 0)
    local next_deadline, next_writer = claim(f[3])
    if next_deadline and not (ticket > 0 and ticket <= left) then
      return refused(next_writer, next_deadline)
    end
    turn = claim(turn) and '0:' .. left
  end
end

local fence = KEYS[2] and tonumber(redis.call('GET', KEYS[2]) or 0) or 0
redis.call('HSET', key, 'v', format, field, count .. ':' .. now + ARGV[3])
if turn then
  redis.call('HSET', key, 't', turn)
end
if f[4] == ARGV[6] then -- no other reader was refused after this one
  redis.call('HDEL', key, 's')
end
outlive(now + ARGV[3])
if clock[2] % 10 == 0 then
  reader() -- sometimes, to remove dead readers
end
return fence
