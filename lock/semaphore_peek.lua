-- semaphore_peek: get the permit with the nearest deadline. Changes nothing.
-- Returns {its token, the ms until its deadline}; nil if none is in use.
local _, limit = ends()
if limit == false then
  return not_a_lock
end
local token, ms = permit(0)
return token and {token, ms}
