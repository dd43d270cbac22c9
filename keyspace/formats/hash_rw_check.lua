-- hash_rw_check: continue only if the holds are unchanged.
-- KEYS[1]  the lock: a hash of mode → owner
-- ARGV[1]  number of holds
-- ARGV[2…] mode and owner of each, as last read
local fields = {}
for i = 2, 2 * ARGV[1], 2 do
  for _, field in ipairs({ ARGV[i], string.sub(ARGV[i], 1, 1) }) do
    if redis.pcall('HGET', KEYS[1], field) == ARGV[i + 1] then
      table.insert(fields, field)
      break
    end
  end
end
if #fields < tonumber(ARGV[1]) then
  return 0
end
