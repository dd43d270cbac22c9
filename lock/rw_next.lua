-- rw_next: stands before the scripts that may wake the writer that is next.

-- wake_next wakes the writer that claims to be next. Without a claim, or if the message
-- does not reach the process of the claim, it wakes the first registered writer, which gets
-- the claim for 750 ms. It returns the deadline of the claim, if there is one now, and
-- whether the process is the caller's. From ARGV[i] on, the script has the arguments of
-- waiters_release.
local function wake_next(i, deadline, next_writer)
  local channel, own, counts = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  if deadline and not own then
    redis.pcall('PUBLISH', channel, key)
    return deadline
  end
  local instead, ours
  if deadline then
    local reached
    reached, ours = message(next_writer, channel, own, counts, 'free')
    if reached then
      return deadline, ours
    end
    instead, ours = wake_one(channel, own, counts, 'free')
  else
    instead, ours = wake(channel, own, counts)
  end
  if instead then -- when memory is full, the first writer to ask gets the lock
    deadline = now + 750
    redis.pcall('HSET', key, 'v', format, 'q', deadline .. ':' .. instead)
  end
  return deadline, ours
end

-- settle updates the key after a holder or a claim has gone, and wakes the writer that
-- is next, if it may get the lock or due is true. Without holders the key is deleted, or
-- expires with the claim and the readers' turn. It returns what wake_next returns. For i,
-- see wake_next.
local function settle(i, due)
  local f = redis.call('HMGET', key, 'w', 'q', 't')
  local waits, next_writer = claim(f[2])
  local free = not hold(f[1]) and readers() == 0
  local ours
  if waits or free or due then
    waits, ours = wake_next(i, waits, next_writer)
  end
  if free then
    local last = math.max(waits or 0, claim(f[3]) or 0)
    if last > 0 then
      redis.call('PEXPIRE', key, last - now)
    else
      redis.call('DEL', key)
    end
  elseif waits then
    outlive(waits)
  end
  return waits, ours
end
