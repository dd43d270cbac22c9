-- whole_release: end the hold of a lock that is a hash, or some of its holds.
-- Returns 1 if the hash was as last read and the holds are released, else 0.
local some = 2 * ARGV[1] + 2
if ARGV[some] then
  redis.call('HDEL', KEYS[1], unpack(ARGV, some))
else
  redis.call('DEL', KEYS[1])
end
return 1
