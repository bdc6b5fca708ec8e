-- A script, because ids and their orders must be of one moment.
-- ARGV: the list's name, the upper bound (`+`, `(id` or `[id`), rows to skip, limit, size in bytes after which the list stops.
-- Returns values of orders, newest first.
local ids = call('ZREVRANGEBYLEX', prefix .. ARGV[1], ARGV[2], '-', 'LIMIT', ARGV[3], ARGV[4])
local values, size = {}, 0
for index, id in ipairs(ids) do
  local value = call('HGET', prefix .. 'orders', id)
  values[index] = value
  size = size + (value and #value or 0)
  if size >= tonumber(ARGV[5]) then break end
end
return values
