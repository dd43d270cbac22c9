-- locktop_rw_release: end holds of locktop's RW.
-- ARGV[#ARGV - 1]  channel of waiting writers
-- ARGV[#ARGV]      channel of waiting readers
-- Returns 1 if the holds were unchanged and are released, else 0.
local turn = false
for _, hold in ipairs(seen) do
  redis.call('HDEL', KEYS[1], hold.field)
  turn = turn or hold.field == 'w'
end
if turn and redis.call('HDEL', KEYS[1], 's') == 1 then -- a reader was refused: it is the readers' turn
  redis.call('HSET', KEYS[1], 't', now + 100 .. ':' .. now)
end
local last, held = 0, false
local all = redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  local ends = deadline(all[i], all[i + 1]) -- v and s have no deadline
  if ends > now then
    last = math.max(last, ends)
    held = held or all[i] == 'w' or string.sub(all[i], 1, 2) == 'r:'
  end
end
if last == 0 then
  redis.call('DEL', KEYS[1])
elseif not held then
  redis.call('PEXPIRE', KEYS[1], last - now)
end
redis.pcall('PUBLISH', ARGV[#ARGV - 1], KEYS[1])
redis.pcall('PUBLISH', ARGV[#ARGV], KEYS[1])
return 1
