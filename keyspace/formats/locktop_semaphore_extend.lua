-- locktop_semaphore_extend: set a new deadline of permits of locktop's Semaphore. The
-- key expires with the last permit.
-- ARGV[#ARGV]  time to live from now, ms
-- Returns 1 if all permits were still in use and have the new deadline, else 0.
for i = 2, #ARGV - 1 do
  if not in_use(ARGV[i]) then
    return 0
  end
end
for i = 2, #ARGV - 1 do
  redis.call('ZADD', KEYS[1], string.format('%.0f', now + ARGV[#ARGV]), ARGV[i])
end
expire()
return 1
