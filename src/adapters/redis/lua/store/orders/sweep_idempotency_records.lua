-- A script, because a record and its age are deleted in one step.
-- ARGV: retention in ms, limit. Returns the number of deleted records.
local old = call('ZRANGEBYSCORE', prefix .. 'marks:age', '-inf', '(' .. integer(now - tonumber(ARGV[1])), 'LIMIT', 0, ARGV[2])
for _, field in ipairs(old) do
  call('HDEL', prefix .. 'marks', field)
  call('ZREM', prefix .. 'marks:age', field)
end
return #old
