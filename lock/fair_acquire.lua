-- fair_acquire: acquire the lock if it is the waiter's turn, else join the queue, which is
-- that of waiters_common.
-- ARGV[4]  counts of tell
-- ARGV[5]  ticket of the waiter; empty = none yet, - = it does not join
-- ARGV[6]  the last 12 characters of a process to which the lock was handed a moment ago, as far
--          as the caller knows; may be empty
-- Returns the fencing token (0 without a fence) if the token holds the lock now. Otherwise
-- returns {token of the holder, its PTTL} and, if the waiter is in the queue, its ticket, and 1
-- if it had a ticket and was no longer there.
-- Repeating the call with the same token is harmless.

-- drop removes the waiters of a process that has not claimed the lock. It may be stopped, and
-- each of them would delay the others. They come back with their tickets.
local function drop(process)
  for _, member in ipairs(redis.pcall('ZRANGE', waiters, 0, 99)) do
    if is_token(member) and string.sub(member, -12) == process and member ~= ARGV[1] then
      redis.call('ZREM', waiters, member)
    end
  end
end

-- serve removes the first living waiter from the queue and returns its token; that of the
-- caller if there is none. If it is another one, serve hands it the lock. It removes up to 100
-- dead waiters and returns '' if there may be more.
local function serve()
  for _ = 1, 100 do
    local first = redis.pcall('ZRANGE', waiters, 0, 0)[1]
    if not first or not is_token(first) then
      return ARGV[1]
    end
    redis.call('ZREM', waiters, first)
    if first == ARGV[1] then
      return first
    end
    if tell(ARGV[3], string.sub(first, -12), first, ARGV[4]) ~= false then
      redis.call('SET', KEYS[1], first, 'PX', 1000)
      watch(ARGV[3], ARGV[1], ARGV[4], first)
      return first
    end
  end
  return ''
end

if not holder then
  if ARGV[6] ~= '' then
    drop(ARGV[6])
  end
  holder = serve()
  if holder == '' then
    return {'', 1} -- ask again at once
  end
  if holder == ARGV[1] then
    return take()
  end
end
local reply = {string.sub(holder, 1, 512), redis.call('PTTL', KEYS[1])} -- a foreign value may be long
if ARGV[5] ~= '-' then
  local lost = ARGV[5] ~= '' and not redis.pcall('ZSCORE', waiters, ARGV[1])
  reply[3] = register(ARGV[3], ARGV[1], ARGV[5])
  reply[4] = lost and 1 or nil
end
return reply
