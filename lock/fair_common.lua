-- fair_common: stands before each script of a fair lock.
-- KEYS[1]  the lock: a string, the token of the holder
-- KEYS[2]  queue: zset of token → ticket
-- KEYS[3]  alive: zset of token → time in ms until which the waiter counts as alive
-- ARGV[1]  channel of the lock. The channel of a process is this name, a colon, and
--          the last 12 characters of the tokens of its waiters
-- ARGV[2]  how long a waiter has to claim a lock that was handed to it, ms
-- ARGV[3]  counts of tell

-- reaches sends a message to the process of a waiter. It returns false if the process has
-- died.
local function reaches(waiter, message)
  return tell(ARGV[1], string.sub(waiter, -12), message, ARGV[3]) ~= false
end

-- watch makes the first waiter check that the next holder claims the lock, unless the
-- waiter is in the process near, which does so without a message.
local function watch(near)
  for i = 0, 9 do
    local head = redis.call('ZRANGE', KEYS[2], i, i)[1]
    if not head or string.sub(head, -12) == near or reaches(head, 'next') then
      return
    end
  end
end

-- serve removes the first living waiter from the queue and hands it the lock, unless it
-- is the waiter that asks: for the time to claim it or, if it is in the process near,
-- for the ms granted and without a message.
-- Returns the token of the waiter; nil if the queue is empty. It removes up to 100 dead
-- waiters and returns '' if there may be more.
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
    if known or gone and tonumber(gone) > now and reaches(first, first) then
      redis.call('SET', KEYS[1], first, 'PX', known and granted or ARGV[2])
      watch(known and near)
      return first
    end
  end
  return ''
end
