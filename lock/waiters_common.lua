-- waiters_common: stands before the scripts that register a waiting process, or wake one.
--
-- The processes that wait for a lock register in one zset, waiters: member → ticket.
-- The ticket is the time of the first refusal, in µs of the server's clock, but greater than
-- those of all that wait. A release removes the first process and sends it a message on its
-- own channel: the name of the lock's channel, a colon, and the last 12 characters of the
-- member. The lock is free meanwhile. A process that comes too late registers again with
-- its old ticket. After it has come too late too often, it registers a token,
-- "<owner>~<uuid>", instead of its name, "<owner>~<12 characters>". The next release hands
-- the lock to that token.
--
-- The scripts make the name of the zset from the name of the channel. It is not one of
-- KEYS, so that a user without permission for it can use the lock: then no process is
-- registered, and a release wakes all of them.

-- waiters_of returns the zset of a lock, by its channel "…free".
local function waiters_of(channel)
  return string.sub(channel, 1, -5) .. 'waiters'
end

-- is_token reports whether a member is a token and not the name of a process.
local function is_token(member)
  return string.sub(member, -13, -13) == '-'
end

-- register adds a member to the waiters, or keeps it there. A member without a ticket comes
-- last, also if the server's clock was set back since the others came. It returns the ticket
-- and, if rank is true, the number of members before it (else -1); nil if the member cannot
-- be added.
local function register(channel, member, ticket, rank)
  local waiters, last = waiters_of(channel), nil
  if ticket == '' then
    local time = redis.call('TIME')
    ticket = time[1] * 1000000 + time[2]
    last = tonumber(redis.pcall('ZRANGE', waiters, -1, -1, 'WITHSCORES')[2])
    if last then
      ticket = math.max(ticket, (last < 0 and last + 4000000000000000 or last) + 1)
    end
  end
  local score = tonumber(ticket)
  if is_token(member) then
    score = score - 4000000000000000 -- before all processes
  end
  local added = redis.pcall('ZADD', waiters, 'NX', string.format('%.0f', score), member)
  if type(added) ~= 'number' then
    return nil
  end
  rank = rank and redis.call('ZRANK', waiters, member) or -1
  if rank < 2 and not last then -- the first two processes, and fair waiters, register again every 1 to 2 s
    redis.call('PEXPIRE', waiters, 16000)
  end
  return tonumber(ticket), rank
end
