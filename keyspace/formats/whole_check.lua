-- whole_check: continue only if a hash is as it was.
-- KEYS[1]  the lock: a hash
-- ARGV[1]  number of its fields
-- ARGV[2…] name and value of each, as last read; after them the fields to remove, if not all
if redis.pcall('HLEN', KEYS[1]) ~= tonumber(ARGV[1]) then
  return 0
end
for i = 2, 2 * ARGV[1], 2 do
  if redis.pcall('HGET', KEYS[1], ARGV[i]) ~= ARGV[i + 1] then
    return 0
  end
end
