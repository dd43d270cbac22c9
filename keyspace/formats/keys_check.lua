-- keys_check: continue only if the holds are unchanged.
-- KEYS  the key of each hold
-- ARGV  the value of each key, as last read
for i = 1, #KEYS do
  if redis.pcall('GET', KEYS[i]) ~= ARGV[i] then
    return 0
  end
end
