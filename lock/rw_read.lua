-- rw_read: take the read lock, or enter it again.
-- KEYS[2]  the fence counter; absent if it is not fenced
-- ARGV[3]  time to live, ms
-- ARGV[4]  what the count becomes; more than 1 = only if the token is there
-- ARGV[5]  the token of the asker's own write lock, within which it may read
-- ARGV[6]  for how long the asker has been waiting, ms; -1 = it does not wait
-- Returns the fencing token of the last writer (0 without a fence) if we read
-- now, else {token of who is in the way, ms until its deadline}.
-- Sending it twice with one token does no harm.
local count, waited = tonumber(ARGV[4]), tonumber(ARGV[6])
local f = redis.call('HMGET', key, 'v', 'w', 'q', 's', 't', field)
if foreign(f[1]) then
  return redis.error_reply('WRONGTYPE the hash is not a read/write lock')
end

local function refused(who, deadline)
  if waited >= 0 and not f[4] then
    redis.pcall('HSET', key, 's', 1)
  end
  return {who, deadline - now}
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
    if next_deadline and now - waited >= left then
      return refused(next_writer, next_deadline)
    end
    turn = claim(turn) and '0:' .. left
  end
end

local fence = KEYS[2] and tonumber(redis.call('GET', KEYS[2]) or 0) or 0
redis.call('HSET', key, 'v', 1, field, count .. ':' .. now + ARGV[3])
if turn then
  redis.call('HSET', key, 't', turn)
end
outlive(now + ARGV[3])
if clock[2] % 10 == 0 then
  reader() -- for its tidying up, now and then
end
return fence
