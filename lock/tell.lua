-- tell: stands behind waiters_common, before the scripts that send a message to one process.

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

-- watch has a process check that a token which was handed the lock claims it: the process of
-- the next token that is not of the same process, unless it is the caller's own.
local function watch(channel, own, counts, token)
  local claims = string.sub(token, -12)
  for i = 0, 9 do
    local member = redis.pcall('ZRANGE', waiters_of(channel), i, i)[1]
    local process = member and string.sub(member, -12)
    if not member or not is_token(member) or process == string.sub(own, -12) then
      return
    end
    if process ~= claims and tell(channel, process, 'next ' .. claims, counts) ~= false then
      return
    end
  end
end
