-- Why a script: ids and their orders of one moment.
-- ARGV: the list's name, the bound (`+` or `(id`), how many to skip, how many to show, `newest` or `oldest`. Answers values or, oldest
-- first, ids.
local list, bound, skip, limit = front .. ARGV[1], ARGV[2], ARGV[3], ARGV[4]
if ARGV[5] == 'oldest' then return call('ZRANGEBYLEX', list, bound, '+', 'LIMIT', skip, limit) end
local ids = call('ZREVRANGEBYLEX', list, bound, '-', 'LIMIT', skip, limit)
local found = {}
for place, id in ipairs(ids) do found[place] = call('HGET', front .. 'orders', id) end
return found
