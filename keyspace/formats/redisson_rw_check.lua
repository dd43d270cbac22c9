-- redisson_rw_check: continue only if the holds are unchanged. Stands before the other
-- scripts of an RReadWriteLock.
-- KEYS[1]  the lock: a hash of mode, and of owner → count
-- KEYS[2…] the timeouts of the readers' acquires
-- ARGV[1]  number of fields
-- ARGV[2…] field, count, field, count …, as last read
local seen = {}
for i = 2, 2 * ARGV[1], 2 do
  if redis.pcall('HGET', KEYS[1], ARGV[i]) ~= ARGV[i + 1] then
    return 0
  end
  seen[#seen + 1] = ARGV[i]
end
