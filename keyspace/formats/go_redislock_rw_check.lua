-- go_redislock_rw_check: continue only if the holds are unchanged.
-- KEYS[1]  a read/write lock of go-redislock: a hash with a mode, and counts
-- ARGV[1]  number of holds
-- ARGV[2…] mode, token and count of each, as last read
for i = 2, 3 * ARGV[1], 3 do
  local count
  if ARGV[i] == 'read' then
    count = redis.pcall('HGET', KEYS[1], 'r:' .. ARGV[i + 1])
  elseif redis.pcall('HGET', KEYS[1], 'writer') == ARGV[i + 1] then
    count = redis.pcall('HGET', KEYS[1], 'wcount')
  end
  if count ~= ARGV[i + 2] then
    return 0
  end
end
