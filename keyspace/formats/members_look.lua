-- members_look: go on only if all that were seen are still there.
-- KEYS[1]  the lock: a collection of those who hold it
-- ARGV[1]  command that finds one of them: ZSCORE, SISMEMBER or HEXISTS
-- ARGV[2]  how many were seen
-- ARGV[3…] those
local seen = {}
for i = 3, 2 + ARGV[2] do
  local found = redis.pcall(ARGV[1], KEYS[1], ARGV[i])
  if not found or found == 0 or type(found) == 'table' then
    return 0
  end
  table.insert(seen, ARGV[i])
end
