-- reentrant_holder: stands before the scripts that name the holder of a reentrant lock.

local not_a_lock = redis.error_reply('WRONGTYPE the hash is not a reentrant lock')

-- holder_of returns the holder: the only field of the hash, whose value is a count. It
-- returns nil if the key does not exist, and false if the hash is not holder → count.
local function holder_of(key)
  local fields = redis.call('HLEN', key)
  if fields == 0 then
    return nil
  end
  local holder = fields == 1 and redis.call('HKEYS', key)[1]
  return holder and string.find(redis.call('HGET', key, holder), '^[1-9]%d*$') and holder or false
end
