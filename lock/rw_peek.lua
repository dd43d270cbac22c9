-- rw_peek: get the writer or, if there is none, a reader. Changes nothing.
-- Returns {its token, ms until its deadline}; nil if the lock is free.
local f = redis.call('HMGET', key, 'v', 'w')
if foreign(f[1]) then
  return not_a_lock
end
local deadline, writer = hold(f[2])
if deadline then
  return {string.sub(writer, 2), deadline - now}
end
local who, its_deadline = reader(true)
return who and {who, its_deadline - now}
