-- A script, because ids and their rows must be of one moment.
-- ARGV: the set's name, the id after which the page begins, limit. Returns rows as operators read them.
local rows = {}
for index, id in ipairs(call('ZRANGEBYSCORE', prefix .. ARGV[1], '(' .. ARGV[2], '+inf', 'LIMIT', 0, ARGV[3])) do rows[index] = row_view(id) end
return rows
