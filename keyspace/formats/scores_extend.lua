-- scores_extend: set a later deadline of holders in a zset of holder → deadline in ms.
-- The key expires with the last holder, if at all.
-- ARGV[#ARGV] time to live from now, ms
-- Returns 1 if all holders were still there and one has the new deadline, else 0. A holder
-- with a later deadline keeps it.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local extended = 0
for _, holder in ipairs(seen) do
  local deadline = tonumber(redis.call('ZSCORE', KEYS[1], holder)) or math.huge
  if later(deadline < 1e13 and deadline - now or -1) then -- no date is so late: it never expires
    redis.call('ZADD', KEYS[1], string.format('%.0f', now + ttl), holder)
    extended = 1
  end
end
if redis.call('PTTL', KEYS[1]) >= 0 then
  extend(KEYS[1])
end
return extended
