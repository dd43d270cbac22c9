-- waiters_release: stands before the scripts that release a lock. From ARGV[i] on, they
-- have these arguments:
-- ARGV[i]    channel of the lock; empty = wake no process
-- ARGV[i+1]  name of the caller's process; absent = wake all processes
-- ARGV[i+2]  counts of tell
-- ARGV[i+3]  a member that waits no longer, if the token does not hold the lock; may be empty
-- ARGV[i+4]  for how long a waiter of the caller's process gets the lock, ms; absent = it must
--            claim it, as others do

-- message sends text to the process of a member, or the member if that is a token, or
-- own if the process is the caller's, which learns from the reply. It returns what tell
-- returns, true for the caller's process, and whether it is the caller's.
local function message(member, channel, own, counts, text)
  local process = string.sub(member, -12)
  if process == string.sub(own, -12) then
    redis.pcall('PUBLISH', channel .. ':' .. process, 'own')
    return true, true
  end
  return tell(channel, process, is_token(member) and member or text, counts), false
end

-- wake_one removes the first registered process that can be reached and sends it a
-- message. It returns the member and whether the process is the
-- caller's; nil if no process is registered, or the waiters cannot be read. A process to
-- which the user may not publish stays registered. popped is the reply to ZPOPMIN if the
-- first one is removed already.
local function wake_one(channel, own, counts, text, popped)
  for _ = 1, 20 do
    popped = popped or redis.pcall('ZPOPMIN', waiters_of(channel))
    local first = popped[1]
    if popped.err or not first then
      return nil
    end
    local reached, ours = message(first, channel, own, counts, text)
    if reached then
      return first, ours
    elseif reached == nil then
      redis.pcall('ZADD', waiters_of(channel), popped[2], first)
      return nil
    end
    popped = nil
  end
end

-- wake wakes one process or, if it reaches none, sends a message to all. So each release
-- sends one message, by which an observer can tell it from a deletion. key is the lock;
-- absent = KEYS[1]. text is the message to the process; absent = free. popped: see
-- wake_one.
local function wake(channel, own, counts, key, text, popped)
  local first, ours
  if own then
    first, ours = wake_one(channel, own, counts, text or 'free', popped)
  end
  if not first and channel ~= '' then
    redis.pcall('PUBLISH', channel, key or KEYS[1])
  end
  return first, ours
end

-- release wakes a waiter and frees the lock with free, or hands it to the first waiter
-- if that is a token: hand stores the token for 1 s. The waiter must claim the lock in
-- this time, and another process checks that, unless the waiter is the caller's own. text is the message, by default free. It returns 1 if the lock is free, 2 if
-- also a process was woken that is the caller's own, or the token. popped: see wake_one.
local function release(i, hand, free, text, popped)
  local first, own = wake(ARGV[i], ARGV[i + 1], ARGV[i + 2], KEYS[1], text, popped)
  if first and is_token(first) then
    hand(first, own and ARGV[i + 4] or 1000)
    if not own then
      watch(ARGV[i], ARGV[i + 1], ARGV[i + 2], first)
    end
    return first
  end
  free()
  return own and 2 or 1
end

-- give_up removes a waiter that does not hold the lock. If is_free returns true, another
-- one is woken: the message may have been for the removed one. Then it returns what release
-- returns, else nil.
local function give_up(i, is_free, hand, free, text)
  if ARGV[i + 3] and ARGV[i + 3] ~= '' then
    redis.pcall('ZREM', waiters_of(ARGV[i]), ARGV[i + 3])
    if is_free() then
      return release(i, hand, free, text)
    end
  end
  return nil
end

-- is_deleted and delete are is_free and free of a lock that is one key.
local function is_deleted()
  return redis.call('EXISTS', KEYS[1]) == 0
end
local function delete()
  redis.call('DEL', KEYS[1])
end
