-- locktop_semaphore_extend: set a later deadline of permits of locktop's Semaphore. The
-- key expires with the last permit.
-- ARGV[#ARGV]  time to live from now, ms
-- Returns 1 if all permits were still in use and one has the new deadline, else 0. A permit
-- with a later deadline keeps it.
for i = 2, #ARGV - 1 do
  if not in_use(ARGV[i]) then
    return 0
  end
end
local extended = 0
for i = 2, #ARGV - 1 do
  if later(redis.call('ZSCORE', KEYS[1], ARGV[i]) - now) then
    redis.call('ZADD', KEYS[1], string.format('%.0f', now + ttl), ARGV[i])
    extended = 1
  end
end
expire()
return extended
