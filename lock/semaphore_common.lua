-- semaphore_common: stands before each script of a semaphore.
-- KEYS[1]  the permits: a zset of token → deadline, in ms of the server's clock. A permit
--          whose deadline has passed counts as absent. One more member,
--          "locktop-limit:<n>" with the score +inf, is the limit of the last acquire: a
--          zset without it is not changed. The key expires with the last permit.
--
-- A release wakes one process for its permit. A process that finds several permits free
-- wakes the next one: after a raised limit, whose message is "more", and, if it is the
-- first that waits, after the end of dead holders, which sends no message. So as many
-- waiters try as there are permits, also if they are in one process, which registers
-- once.
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

local not_a_lock = redis.error_reply('WRONGTYPE the sorted set is not a semaphore')

-- ends returns the last deadline, 0 if no permit is stored, and the limit; nil instead of
-- the limit if the key does not exist, false if the zset is not a semaphore.
local function ends()
  local last = redis.call('ZRANGE', KEYS[1], -2, -1, 'WITHSCORES')
  local member = last[#last - 1]
  if not member then
    return 0, nil
  end
  local limit = string.match(member, '^locktop%-limit:(%d+)$')
  return limit and last[4] and tonumber(last[2]) or 0, limit or false
end

-- stored_limit returns the limit that SetLimit has stored in a key; nil if there is none,
-- or if the user has no permission to read it. An empty key is none.
local function stored_limit(key)
  local set = key ~= '' and redis.pcall('GET', key)
  return type(set) == 'string' and string.match(set, '^[1-9]%d*$') or nil
end

-- permits returns the number of permits in use.
local function permits()
  return redis.call('ZCOUNT', KEYS[1], string.format('(%.0f', now), '(inf')
end

-- is_free reports whether a permit is free.
local function is_free()
  local _, limit = ends()
  return limit == nil or limit and permits() < tonumber(limit)
end

-- permit returns the token of a permit in use and the ms until its deadline. The permits
-- count from 0, by their deadlines. It returns nil if there are fewer.
local function permit(rank)
  local found = redis.call('ZRANGEBYSCORE', KEYS[1], string.format('(%.0f', now), '(inf', 'WITHSCORES', 'LIMIT', rank, 1)
  return found[1], found[1] and tonumber(found[2]) - now
end

-- holds reports whether the token has a permit in use.
local function holds(token)
  local deadline = redis.call('ZSCORE', KEYS[1], token)
  return deadline and tonumber(deadline) > now
end

-- expire_at makes the key expire with the last permit, or deletes it if none is in use.
local function expire_at(last)
  if last > now then
    redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', last))
  else
    redis.call('DEL', KEYS[1])
  end
end

local function expire()
  local last = ends()
  expire_at(last)
end

-- store sets the deadline of a permit to ms from now, and the limit. last and old are
-- what ends returns.
local function store(token, ms, limit, last, old)
  redis.call('ZADD', KEYS[1], string.format('%.0f', now + ms), token, '+inf', 'locktop-limit:' .. limit)
  if old and old ~= limit then
    redis.call('ZREM', KEYS[1], 'locktop-limit:' .. old)
  end
  expire_at(math.max(last, now + ms))
end
