-- rw_write: acquire the write lock, or enter it again; else a waiter claims to be next
-- or registers.
-- KEYS[2]  fence counter; absent if the lock is not fenced
-- ARGV[3]  time to live, ms
-- ARGV[4]  new count; with more than 1 the token must hold the lock already
-- ARGV[5]  id of the claim of a waiting writer; empty = it does not wait
-- ARGV[6]  how long the claim keeps others out unless it is renewed, ms
-- ARGV[7…9] see waiters_release; absent = waiting writers do not register
-- ARGV[10…] of a waiter that may register: see waiters_acquire
-- Returns the fencing token (0 without a fence) if the token holds the write lock now.
-- Otherwise returns {token of a holder or the next writer, ms until its deadline} and,
-- if the waiter has registered, its ticket and the number of members before it (-1 = not
-- counted). The token is empty if it is the readers' turn or, with 0 ms, if there were more dead
-- readers than one call removes: then repeat the call.
-- Repeating the call with the same token is harmless.
local count, id = tonumber(ARGV[4]), ARGV[5]
local f = redis.call('HMGET', key, 'v', 'w', 'q', 's', 't')
if foreign(f[1]) then
  return not_a_lock
end
local next_deadline, next_writer = claim(f[3])
local mine = not next_deadline or same(next_writer, id)

local deadline, writer = hold(f[2])

-- is_first reports whether no other process is registered before the waiter.
local function is_first()
  local first = ARGV[7] and redis.pcall('ZRANGE', waiters_of(ARGV[7]), 0, 0)
  return not first or first.err or not first[1] or same(first[1], id)
end

-- claim_next makes the waiter the next writer. When memory is full, the claim cannot be
-- written; no client can acquire the lock then.
local function claim_next()
  local claimed = redis.pcall('HSET', key, 'q', now + ARGV[6] .. ':' .. id)
  if type(claimed) == 'number' then
    outlive(now + ARGV[6])
  end
  if ARGV[10] and string.find(ARGV[13], 'r') then
    redis.pcall('ZREM', waiters_of(ARGV[10]), ARGV[11])
  end
end

-- turn_away returns the refusal. The waiter claims to be the next writer unless another
-- one does, or is registered before it. Then it registers, and readers that hold the
-- lock are not left without a claim: the first registered writer gets it.
local function turn_away(who, its_deadline)
  local reply = {who, its_deadline - now}
  if id == '' then
    return reply
  end
  if mine and (next_deadline or is_first()) then
    claim_next()
    return reply
  end
  if ARGV[10] then
    reply[3], reply[4] = register(ARGV[10], ARGV[11], ARGV[12], string.find(ARGV[13], 'l'))
  end
  if not next_deadline and not deadline then
    local claimed, ours = wake_next(7)
    if claimed then
      outlive(claimed)
    end
    if ours then
      return {who, its_deadline - now}
    end
  end
  return reply
end

if count > 1 and writer ~= tail then
  return {'', 0}
end
if writer ~= tail then
  if deadline then
    return turn_away(string.sub(writer, 2), deadline)
  end
  local turn = claim(f[2] and writer_left() or f[5])
  if not mine then
    return turn_away(next_writer, next_deadline)
  end
  if turn then
    return turn_away('', turn)
  end
  local who, its_deadline = reader()
  if who then
    return turn_away(who, its_deadline)
  end
  if not its_deadline then
    return turn_away('', now)
  end
end

local fence = 0
if KEYS[2] then
  fence = writer == tail and tonumber(redis.call('GET', KEYS[2]) or '') or redis.call('INCR', KEYS[2])
end
redis.call('HSET', key, 'v', format, 'w', count .. ':' .. now + ARGV[3] .. tail)
outlive(now + ARGV[3])
if writer ~= tail then
  redis.call('HDEL', key, 'q')
end
acquired(10)
return fence
