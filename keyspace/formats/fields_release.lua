-- fields_release: end holds of a lock that is a hash with fields of its holders.
-- Returns 1 if the holds were unchanged and are released, else 0.
if ARGV[1] == 'DEL' then
  redis.call('DEL', KEYS[1])
else
  redis.call('HDEL', KEYS[1], unpack(fields))
end
return 1
