-- fields_check: continue only if the holds are unchanged.
-- KEYS[1]  the lock: a hash with fields of its holders
-- ARGV[1]  DEL if it is one hold, or HDEL if each field is a hold
-- ARGV[2]  how often the hold was entered
-- ARGV[3]  number of fields that are compared
-- ARGV[4…] name and value of each, as last read; after them names of fields with a count
local last = 3 + 2 * ARGV[3]
local fields = {}
for i = 4, last, 2 do
  if redis.pcall('HGET', KEYS[1], ARGV[i]) ~= ARGV[i + 1] then
    return 0
  end
  table.insert(fields, ARGV[i])
end
if #fields == 0 then
  return 0
end
if ARGV[1] == 'DEL' then
  for i = last + 1, #ARGV do
    local count = tonumber(redis.call('HGET', KEYS[1], ARGV[i]))
    if count and count > 0 and count ~= tonumber(ARGV[2]) then
      return 0
    end
  end
end
