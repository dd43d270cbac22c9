-- rw_write: acquire the write lock, or enter it again.
-- KEYS[2]  fence counter; absent if the lock is not fenced
-- ARGV[3]  time to live, ms
-- ARGV[4]  new count; with more than 1 the token must hold the lock already
-- ARGV[5]  id of the claim of a waiting writer; empty = it does not wait
-- ARGV[6]  how long the claim keeps others out unless it is renewed, ms
-- Returns the fencing token (0 without a fence) if the token holds the write lock now.
-- Otherwise returns {token of a holder or of the next writer, ms until its deadline}.
-- The token is empty if it is the readers' turn or, with 0 ms, if there were more dead
-- readers than one call removes: then repeat the call.
-- Repeating the call with the same token is harmless.
local count, id = tonumber(ARGV[4]), ARGV[5]
local f = redis.call('HMGET', key, 'v', 'w', 'q', 's', 't')
if foreign(f[1]) then
  return redis.error_reply('WRONGTYPE the hash is not a read/write lock')
end
local next_deadline, next_writer = claim(f[3])
local mine = not next_deadline or same(next_writer, id)

-- When memory is full, the claim cannot be written; no client can acquire the lock then.
local function refused(who, deadline)
  if id ~= '' and mine then
    local claimed = redis.pcall('HSET', key, 'q', now + ARGV[6] .. ':' .. id)
    if type(claimed) == 'number' then
      outlive(now + ARGV[6])
    end
  end
  return {who, deadline - now}
end

local deadline, writer = hold(f[2])
if count > 1 and writer ~= tail then
  return {'', 0}
end
if writer ~= tail then
  if deadline then
    return refused(string.sub(writer, 2), deadline)
  end
  local turn = claim(f[2] and writer_left() or f[5])
  if not mine then
    return {next_writer, next_deadline - now}
  end
  if turn then
    return refused('', turn)
  end
  local who, its_deadline = reader()
  if who then
    return refused(who, its_deadline)
  end
  if not its_deadline then
    return refused('', now)
  end
end

local fence = 0
if KEYS[2] then
  fence = writer == tail and tonumber(redis.call('GET', KEYS[2]) or '') or redis.call('INCR', KEYS[2])
end
redis.call('HSET', key, 'v', 1, 'w', count .. ':' .. now + ARGV[3] .. tail)
outlive(now + ARGV[3])
if writer ~= tail then
  redis.call('HDEL', key, 'q')
end
return fence
