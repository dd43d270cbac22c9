-- semaphore_count: count the permits in use. Changes nothing.
-- ARGV[1]  limit of the caller
-- ARGV[2]  key of the stored limit; empty = none
-- Returns {permits in use, limit that counts for the caller}.
local _, old = ends()
if old == false then
  return not_a_lock
end
return {permits(), tonumber(stored_limit(ARGV[2]) or ARGV[1])}
