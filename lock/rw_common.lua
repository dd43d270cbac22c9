-- rw_common: stands before each script of a read/write lock.
-- KEYS[1]  the lock: a hash. Its deadlines are times of the server's clock in ms; an
--          entry whose deadline has passed counts as absent. The fields:
--            v          locktop-rw-1, this format and its version: a hash without it is not
--                       changed
--            r:<token>  <count>:<deadline> of a reader
--            w          <count>:<deadline>:<token> of the writer
--            q          <deadline>:<process>, the claim of the waiting writer that is
--                       next, as "<owner>~<12 characters>"; the others are registered
--            s          the ticket of the last reader that was refused since a writer last
--                       left, and has not come in since: when it was refused first, in ms
--            t          <deadline>:<ms>, the readers' turn: until when writers wait for
--                       a first reader (0: one has come), and when the last writer
--                       left; readers that waited then go before the next writer
--          The key does not expire before the last of the deadlines.
-- ARGV[1]  r or w: the side that the token holds or asks for
-- ARGV[2]  the token
local key, mode, token = KEYS[1], ARGV[1], ARGV[2]
local field, tail = 'r:' .. token, ''
if mode == 'w' then
  field, tail = 'w', ':' .. token
end
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local grace = 100 -- how long a writer lets waiting readers go first, ms

-- hold parses the field of a holder: its deadline and, for a writer, ':<token>'.
-- Nil if the deadline has passed.
local function hold(value)
  local deadline, rest = string.match(value or '', '^%d+:(%d+)(.*)$')
  deadline = tonumber(deadline or 0)
  if deadline > now then
    return deadline, rest
  end
end

-- claim parses q or t: its deadline and the rest. Nil if the deadline has passed.
local function claim(value)
  local deadline, rest = string.match(value or '', '^(%d+):(.*)$')
  deadline = tonumber(deadline or 0)
  if deadline > now then
    return deadline, rest
  end
end

-- same reports whether two claims come from one process, with any owner labels: the
-- writers of a process share one claim.
local function same(a, b)
  return string.sub(a, -12) == string.sub(b, -12)
end

local format = 'locktop-rw-1'
local not_a_lock = redis.error_reply('WRONGTYPE the hash is not a read/write lock')

-- foreign reports whether the key exists in another format, by its field v.
local function foreign(v)
  return v ~= format and redis.call('EXISTS', key) == 1
end

-- outlive makes the key expire no earlier than a deadline.
local function outlive(deadline)
  if redis.call('PTTL', key) < deadline - now then
    redis.call('PEXPIRE', key, deadline - now)
  end
end

-- writer_left removes the writer and, if readers were refused in the meantime, starts
-- the readers' turn. It returns the new value of t.
local function writer_left()
  redis.call('HDEL', key, 'w')
  if redis.call('HDEL', key, 's') == 0 then
    return redis.call('HGET', key, 't')
  end
  local turn = now + grace .. ':' .. now
  redis.call('HSET', key, 't', turn)
  return turn
end

-- readers returns the number of reader fields, including dead readers.
local function readers()
  local n = redis.call('HLEN', key)
  for _, value in ipairs(redis.call('HMGET', key, 'v', 'w', 'q', 's', 't')) do
    if value then
      n = n - 1
    end
  end
  return n
end

-- reader returns the token and the deadline of one living reader. It scans the hash in
-- pages from a random position. In a hash of this format it removes up to 100 dead readers
-- and unknown fields, unless keep is true: then it changes nothing and looks at up to
-- 50,000 fields. If it finds no reader, it returns nil, and whether none is left.
local function reader(keep)
  local ours = {v = true, w = true, q = true, s = true, t = true}
  local cursor, removed = keep and '0' or math.floor(clock[2] / 10), 0
  for _ = 1, 50 do
    local page = redis.call('HSCAN', key, cursor, 'COUNT', keep and 1000 or 20)
    local gone, found, its_deadline = {}, nil, nil
    for i = 1, #page[2], 2 do
      local name = page[2][i]
      local deadline = string.sub(name, 1, 2) == 'r:' and hold(page[2][i + 1])
      if deadline then
        found, its_deadline = string.sub(name, 3), deadline
      elseif not keep and not ours[name] and removed < 100 then
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
    cursor = page[1]
    if readers() == 0 or removed == 100 or keep and cursor == '0' then
      return nil, readers() == 0
    end
  end
  return nil, false
end
