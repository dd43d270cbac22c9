-- rw_write: take the write lock, or enter it again.
-- KEYS[2]  the fence counter; absent if it is not fenced
-- ARGV[3]  time to live, ms
-- ARGV[4]  what the count becomes; more than 1 = only if the token is there
-- ARGV[5]  id of the asker as one that waits; empty = it does not wait
-- ARGV[6]  for how long its waiting keeps others out unless it asks again, ms
-- Returns the fencing token (0 without a fence) if we write now, else {token of
-- who is in the way, ms until its deadline}. Without a token it is the readers'
-- turn or, at 0 ms, there were too many dead readers for one call: send it again.
-- Sending it twice with one token does no harm.
local count, id = tonumber(ARGV[4]), ARGV[5]
local f = redis.call('HMGET', key, 'v', 'w', 'q', 's', 't')
if foreign(f[1]) then
  return redis.error_reply('WRONGTYPE the hash is not a read/write lock')
end
local next_deadline, next_writer = claim(f[3])
local mine = not next_deadline or same(next_writer, id)

-- When memory is full the claim cannot be written; nobody gets in then anyway.
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
