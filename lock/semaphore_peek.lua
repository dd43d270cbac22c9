-- semaphore_peek: get the permit with the nearest deadline. Changes nothing.
-- Returns {its token, the ms until its deadline}; the token is empty if none is in use.
local token, ms = permit(0)
return {token or '', ms or 0}
