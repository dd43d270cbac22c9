-- redfour_release: end the hold of a lock of redfour or ioredfour.
-- KEYS[1]  the lock
-- KEYS[2…] the possible counters of its namespace: {namespace}index
-- ARGV[4]  the number of the hold, as last read
-- Returns 1 if the hold was unchanged and is released, else 0.
if redis.pcall('HGET', KEYS[1], 'index') ~= ARGV[4] then
  return 0
end
redis.call('DEL', KEYS[1])
for i = 2, #KEYS do
  local last = redis.pcall('GET', KEYS[i])
  if type(last) == 'string' and (tonumber(last) or 0) >= tonumber(ARGV[4]) then
    local slot, found = string.gsub(KEYS[i], '}:index$', '}')
    if found == 1 then -- in a cluster, the waiters subscribe to a sharded channel
      redis.pcall('SPUBLISH', slot .. '-release', KEYS[1])
    else
      redis.pcall('PUBLISH', string.gsub(KEYS[i], 'index$', '-release'), KEYS[1])
    end
  end
end
return 1
