-- tell: stands before the scripts that send a message to one process.

-- tell sends text on the channel of a process: the name of the lock's channel, a colon,
-- and 12 characters. counts is 1 if PUBLISH returns the number of subscribers, 0 on a
-- cluster, where it counts those of one node. It returns true if the process may have
-- received the message, false if it has died, and nil if the user may not publish.
-- PUBLISH also counts the subscribers of a pattern, such as an observer of all locks;
-- NUMSUB does not. For a user without permission for it, the count of PUBLISH decides.
local function tell(channel, process, text, counts)
  channel = channel .. ':' .. process
  local received = redis.pcall('PUBLISH', channel, text)
  if type(received) ~= 'number' then
    return nil
  end
  if received == 0 or counts == '0' then
    return received ~= 0 or counts == '0'
  end
  local exact = redis.pcall('PUBSUB', 'NUMSUB', channel)
  return exact.err ~= nil or exact[2] ~= 0
end
