-- members_check: continue only if all holders are still there.
-- KEYS[1]  the lock: a collection of its holders
-- ARGV[1]  command that finds a holder: ZSCORE, SISMEMBER or HEXISTS
-- ARGV[2]  number of holders
-- ARGV[3…] the holders, as last read
local seen = {}
for i = 3, 2 + ARGV[2] do
  local found = redis.pcall(ARGV[1], KEYS[1], ARGV[i])
  if not found or found == 0 or type(found) == 'table' then
    return 0
  end
  table.insert(seen, ARGV[i])
end
