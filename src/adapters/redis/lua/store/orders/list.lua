-- A script, because ids and their orders must be of one moment.
-- ARGV: the list's name, the upper bound (`+`, `(id` or `[id`), rows to skip, limit. Returns values of orders, newest first.
local ids = call('ZREVRANGEBYLEX', prefix .. ARGV[1], ARGV[2], '-', 'LIMIT', ARGV[3], ARGV[4])
local values = {}
for index, id in ipairs(ids) do values[index] = call('HGET', prefix .. 'orders', id) end
return values
