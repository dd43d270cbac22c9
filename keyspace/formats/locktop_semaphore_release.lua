-- locktop_semaphore_release: end permits of locktop's Semaphore.
-- Returns 1 if all permits were still in use and are released, else 0.
for i = 2, #ARGV do
  if not in_use(ARGV[i]) then
    return 0
  end
end
redis.call('ZREM', KEYS[1], unpack(ARGV, 2))
expire()
redis.pcall('PUBLISH', ARGV[1], KEYS[1])
return 1
