-- all_release: release the locks that the token holds, and wake a waiter of each.
-- KEYS[i]  the locks
-- ARGV[1]  token of the holder
-- ARGV[2]  1 if PUBLISH returns the number of subscribers, 0 on a cluster
-- ARGV[3…] of each lock: its channel, and the name of the caller's process; empty = wake
--          all processes
-- Returns for each lock 0 if the token does not hold it, 1 if it is free, 2 if also a
-- process was woken that is the caller's own, or the token to which it was handed.
-- Works when memory is full: a script whose first write is allowed then may write on.
local replies = {}
for i, key in ipairs(KEYS) do
  replies[i] = 0
  if redis.call('GET', key) == ARGV[1] then
    local process = ARGV[2 * i + 2]
    local first, own = wake(ARGV[2 * i + 1], process ~= '' and process, ARGV[2], key)
    if first and is_token(first) then
      redis.call('SET', key, first, 'PX', 1000)
      replies[i] = first
    else
      redis.call('DEL', key)
      replies[i] = own and 2 or 1
    end
  end
end
return replies
