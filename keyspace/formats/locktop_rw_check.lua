-- locktop_rw_check: continue only if the holds are unchanged. Stands before the other
-- scripts of locktop's RW.
-- KEYS[1]  the lock: one hash. r:<token> is <count>:<deadline> of a reader,
--          w is <count>:<deadline>:<token> of the writer
-- ARGV[1]  number of holds
-- ARGV[2…] field, count, and the text after the deadline of each, as last read
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local function deadline(field, value)
  local pattern = (field == 'w' or string.sub(field, 1, 2) == 'r:') and '^%d+:(%d+)' or '^(%d+):'
  return tonumber(string.match(value, pattern) or 0)
end
local seen = {}
for i = 2, 3 * ARGV[1], 3 do
  local value = redis.pcall('HGET', KEYS[1], ARGV[i])
  if type(value) ~= 'string' then
    return 0
  end
  local count, behind = string.match(value, '^(%d+):%d+(.*)$')
  if count ~= ARGV[i + 1] or behind ~= ARGV[i + 2] or deadline(ARGV[i], value) <= now then
    return 0
  end
  seen[#seen + 1] = {field = ARGV[i], count = count, behind = behind}
end
