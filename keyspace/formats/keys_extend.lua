-- keys_extend: set a later deadline of holds of a lock that has a key for each.
-- ARGV[#ARGV] time to live from now, ms
-- Returns 1 if the holds were unchanged and one has the new deadline, else 0. A hold with a
-- later deadline keeps it.
local extended = 0
for i = 1, #KEYS do
  extended = math.max(extended, extend(KEYS[i]))
end
return extended
