-- count_extend: set a later deadline of a lock that is a hash of holder → count.
-- KEYS[1]     the lock
-- ARGV[3…]    holder, count, holder, count …, as last read
-- ARGV[#ARGV] time to live from now, ms
-- Returns 1 if the holds were unchanged and the lock has the new deadline, else 0.
for i = 3, #ARGV - 1, 2 do
  if redis.pcall('HGET', KEYS[1], ARGV[i]) ~= ARGV[i + 1] then
    return 0
  end
end
return extend(KEYS[1])
