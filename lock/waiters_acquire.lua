-- waiters_acquire: stands before the scripts by which a waiter acquires a lock. From
-- ARGV[i] on, they have these arguments; none if the caller does not wait:
-- ARGV[i]    channel of the lock
-- ARGV[i+1]  member to register
-- ARGV[i+2]  its ticket; empty = none yet
-- ARGV[i+3]  letters: r if the member may be registered, w if the lock is probably free, l if
--            it was refused before and looks by itself
-- ARGV[i+4]  process to keep registered for its other waiters; absent = there are none

-- probably_held reports whether a waiter asks that expects the lock to be held.
local function probably_held(i)
  return ARGV[i] and not string.find(ARGV[i + 3], 'w')
end

-- acquired ends the registration. It returns what register does for the other waiters of
-- the process; nil if there are none, or if they cannot be registered.
local function acquired(i)
  if ARGV[i] and string.find(ARGV[i + 3], 'r') then
    redis.pcall('ZREM', waiters_of(ARGV[i]), ARGV[i + 1])
  end
  if ARGV[i + 4] then
    return register(ARGV[i], ARGV[i + 4], '')
  end
end

-- refused registers the member and returns the reply.
local function refused(holder, i)
  local reply = {string.sub(holder, 1, 512), redis.call('PTTL', KEYS[1])} -- a foreign value may be long
  if ARGV[i] then
    reply[3], reply[4] = register(ARGV[i], ARGV[i + 1], ARGV[i + 2], string.find(ARGV[i + 3], 'l'))
  end
  return reply
end
