-- fair_common: what the scripts of a fair lock share.
-- KEYS[1]  the lock: a string, the token of the holder
-- KEYS[2]  queue: zset of token → ticket
-- KEYS[3]  alive: zset of token → ms at which the waiter counts as gone
-- ARGV[1]  channel on which waiters listen; the last 12 characters of a token,
--          which are those of its process, name one beside it
-- ARGV[2]  how long a waiter has to claim what it was handed, ms
-- ARGV[3]  1 if the server knows who listens, 0 if it is one of a cluster

-- Sends a message to a waiter's process. False means that it is gone.
local function tell(waiter, message)
  local listeners = redis.pcall('PUBLISH', ARGV[1] .. ':' .. string.sub(waiter, -12), message)
  return listeners ~= 0 or ARGV[3] == '0'
end

-- Has the first waiter look after the claim of whoever has the lock now, unless
-- it is of the process near, which sees to that itself.
local function watch(near)
  for i = 0, 9 do
    local head = redis.call('ZRANGE', KEYS[2], i, i)[1]
    if not head or string.sub(head, -12) == near or tell(head, 'next') then
      return
    end
  end
end

-- Takes the first waiter that is alive out of the queue and, unless it is the
-- one who asks, hands it the lock: for the time to claim it, or, in the process
-- near, which lives and needs no message, for the ms granted.
-- Returns its token, nil if nobody waits; the dead before it are dropped, no more
-- than a hundred at a time: '' says that there may be more.
local function serve(asking, near, granted)
  local now
  for _ = 1, 100 do
    local first = redis.call('ZPOPMIN', KEYS[2])[1]
    if not first then
      return nil
    end
    local known = string.sub(first, -12) == near
    local gone = not known and first ~= asking and redis.call('ZSCORE', KEYS[3], first)
    redis.call('ZREM', KEYS[3], first)
    if first == asking then
      watch()
      return first
    end
    if gone and not now then
      local time = redis.call('TIME')
      now = time[1] * 1000 + math.floor(time[2] / 1000)
    end
    if known or gone and tonumber(gone) > now and tell(first, first) then
      redis.call('SET', KEYS[1], first, 'PX', known and granted or ARGV[2])
      watch(known and near)
      return first
    end
  end
  return ''
end
