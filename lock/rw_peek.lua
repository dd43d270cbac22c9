-- rw_peek: get the writer or, if there is none, a reader.
-- Returns {its token, ms until its deadline}; the token is empty if the lock is free.
local deadline, writer = hold(redis.call('HGET', key, 'w'))
if deadline then
  return {string.sub(writer, 2), deadline - now}
end
local who, its_deadline = reader()
return {who or '', who and its_deadline - now or 0}
