-- all_extend: set the time to live of all locks if the token holds each of them.
-- KEYS[i]  the locks
-- ARGV[1]  token of the holder
-- ARGV[2]  time to live from now, ms
-- Returns 1, or 0 if the token does not hold one of the locks; then nothing is changed.
-- A lost lock is not created again. Works when memory is full.
for _, key in ipairs(KEYS) do
  if redis.call('GET', key) ~= ARGV[1] then
    return 0
  end
end
for _, key in ipairs(KEYS) do
  redis.call('PEXPIRE', key, ARGV[2])
end
return 1
