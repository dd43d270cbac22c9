-- waiters_quick: release a lock for which no process waits, which is the usual case. It
-- stands first in a script, because a script creates its functions anew in every call:
-- without them a release takes about a quarter less of the server's time.
-- ends  true if the token holds the lock, and this is the release of its last entry
-- i     index of the arguments of waiters_release
local popped = ends and ARGV[i + 1] and redis.pcall('ZPOPMIN', string.sub(ARGV[i], 1, -5) .. 'waiters')
if popped and not popped[1] then
  redis.pcall('PUBLISH', ARGV[i], KEYS[1])
  redis.call('DEL', KEYS[1])
  return 1
end
