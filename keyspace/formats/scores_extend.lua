-- scores_extend: set a new deadline of holders in a zset of holder → deadline in ms.
-- The key expires with the last holder, if at all.
-- ARGV[#ARGV] time to live from now, ms
-- Returns 1 if all holders were still there and have the new deadline, else 0.
local time = redis.call('TIME')
local till = time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[#ARGV]
for _, holder in ipairs(seen) do
  redis.call('ZADD', KEYS[1], string.format('%.0f', till), holder)
end
local left = redis.call('PTTL', KEYS[1])
if left >= 0 and left < tonumber(ARGV[#ARGV]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[#ARGV])
end
return 1
