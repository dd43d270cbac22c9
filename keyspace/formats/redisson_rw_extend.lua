-- redisson_rw_extend: set a later deadline of holds of an RReadWriteLock.
-- ARGV[#ARGV]  time to live from now, ms
-- Returns 1 if the holds were unchanged and one has the new deadline, else 0. A hold with a
-- later deadline keeps it. The lock expires with the last of its holds.
local extended = extend(KEYS[1])
for i = 2, #KEYS do
  extended = math.max(extended, extend(KEYS[i]))
end
return extended
