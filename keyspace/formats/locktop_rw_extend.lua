-- locktop_rw_extend: set a later deadline of holds of locktop's RW.
-- ARGV[#ARGV]  time to live from now, ms
-- Returns 1 if the holds were unchanged and one has the new deadline, else 0. A hold with a
-- later deadline keeps it.
local extended = 0
for _, hold in ipairs(seen) do
  if later(deadline(hold.field, redis.call('HGET', KEYS[1], hold.field)) - now) then
    redis.call('HSET', KEYS[1], hold.field, hold.count .. ':' .. string.format('%.0f', now + ttl) .. hold.behind)
    extended = 1
  end
end
extend(KEYS[1])
return extended
