-- What the scripts for an RReadWriteLock begin with: holds that are not as they
-- were seen end them.
-- KEYS[1]  the lock: a hash of mode, and of owner → count
-- KEYS[2…] the timeouts of the entries of the readers that were seen
-- ARGV[1]  how many fields were seen
-- ARGV[2…] field, count, field, count … as they were seen
local seen = {}
for i = 2, 2 * ARGV[1], 2 do
  if redis.pcall('HGET', KEYS[1], ARGV[i]) ~= ARGV[i + 1] then
    return 0
  end
  seen[#seen + 1] = ARGV[i]
end
