-- keys_look: go on only if all that were seen still hold as they did.
-- KEYS  the key of each hold
-- ARGV  what was seen in each
for i = 1, #KEYS do
  if redis.pcall('GET', KEYS[i]) ~= ARGV[i] then
    return 0
  end
end
