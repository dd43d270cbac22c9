-- What the scripts of the read/write lock have in common: it stands before each.
-- KEYS[1]  the lock: one hash, in which every deadline is a time of the
--          server's clock in ms, and what is past its deadline counts as gone:
--            v          1, the version of all this
--            r:<token>  <count>:<deadline> of a reader
--            w          <count>:<deadline>:<token> of the writer
--            q          <deadline>:<id> of the writer that waits, and is next
--            s          1: a reader has been turned away since a writer last left
--            t          <deadline>:<ms>, the readers' turn: until when writers
--                       wait for a first one to come (0: one has), and when the
--                       last writer left; who waited by then goes in before the next
--          Its own expiry is never before the last of the deadlines.
-- ARGV[1]  r or w: what the token reads or writes
-- ARGV[2]  the token
local key, mode, token = KEYS[1], ARGV[1], ARGV[2]
local field, tail = 'r:' .. token, ''
if mode == 'w' then
  field, tail = 'w', ':' .. token
end
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local grace = 100 -- for how long a writer lets waiting readers go first, ms

-- hold reads a holder's field: its deadline and, of a writer, ':<token>'.
-- Nil if it is over.
local function hold(value)
  local deadline, rest = string.match(value or '', '^%d+:(%d+)(.*)$')
  deadline = tonumber(deadline or 0)
  if deadline > now then
    return deadline, rest
  end
end

-- claim reads q or t: its deadline and the rest. Nil if it is over.
local function claim(value)
  local deadline, rest = string.match(value or '', '^(%d+):(.*)$')
  deadline = tonumber(deadline or 0)
  if deadline > now then
    return deadline, rest
  end
end

-- same reports whether two waiting writers are of one process, whatever their
-- labels: they stand in one line there, and share the claim.
local function same(a, b)
  return string.sub(a, -36) == string.sub(b, -36)
end

-- foreign reports whether the hash is not one of ours, by its version.
local function foreign(version)
  return version ~= '1' and redis.call('EXISTS', key) == 1
end

-- outlive makes the key last until a deadline.
local function outlive(deadline)
  if redis.call('PTTL', key) < deadline - now then
    redis.call('PEXPIRE', key, deadline - now)
  end
end

-- writer_left removes the writer and, if readers were turned away meanwhile,
-- makes it their turn. It returns what t has become.
local function writer_left()
  redis.call('HDEL', key, 'w')
  if redis.call('HDEL', key, 's') == 0 then
    return redis.call('HGET', key, 't')
  end
  local turn = now + grace .. ':' .. now
  redis.call('HSET', key, 't', turn)
  return turn
end

-- readers counts the fields of readers, also of those that are gone.
local function readers()
  local n = redis.call('HLEN', key)
  for _, value in ipairs(redis.call('HMGET', key, 'v', 'w', 'q', 's', 't')) do
    if value then
      n = n - 1
    end
  end
  return n
end

-- reader looks for one that is there, page by page from anywhere in the hash,
-- and returns its token and deadline. On the way it removes those that are gone,
-- up to 100, and whatever else does not belong here. Without a reader it returns
-- nil, and whether it has seen all.
local function reader()
  local ours = {v = true, w = true, q = true, s = true, t = true}
  local cursor, removed = math.floor(clock[2] / 10), 0
  for _ = 1, 50 do
    local page = redis.call('HSCAN', key, cursor, 'COUNT', 20)
    local gone, found, its_deadline = {}, nil, nil
    for i = 1, #page[2], 2 do
      local name = page[2][i]
      local deadline = string.sub(name, 1, 2) == 'r:' and hold(page[2][i + 1])
      if deadline then
        found, its_deadline = string.sub(name, 3), deadline
      elseif not ours[name] and removed < 100 then
        gone[#gone + 1] = name
        removed = removed + 1
      end
    end
    if #gone > 0 then
      redis.call('HDEL', key, unpack(gone))
    end
    if found then
      return found, its_deadline
    end
    if readers() == 0 or removed == 100 then
      return nil, readers() == 0
    end
    cursor = page[1]
  end
  return nil, false
end

-- settle sees to what stays when somebody has gone: with the last holder goes
-- the key, unless a turn is still to come. It returns whether a writer may get
-- in now, or waits at least.
local function settle()
  local f = redis.call('HMGET', key, 'w', 'q', 't')
  local waits = claim(f[2])
  if hold(f[1]) or readers() > 0 then
    return waits
  end
  local last = math.max(waits or 0, claim(f[3]) or 0)
  if last > 0 then
    redis.call('PEXPIRE', key, last - now)
  else
    redis.call('DEL', key)
  end
  return true
end

