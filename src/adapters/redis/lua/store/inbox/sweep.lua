-- A script, because the server's clock decides an entry's age in the step that deletes it.
-- ARGV: retention in ms, limit. Returns the number of deleted entries over all groups.
local left = tonumber(ARGV[2])
for _, group in ipairs(call('SMEMBERS', prefix .. 'groups')) do
  if left <= 0 then break end
  local ages = prefix .. 'processed:age:' .. group
  local old = call('ZRANGEBYSCORE', ages, '-inf', '(' .. integer(now - tonumber(ARGV[1])), 'LIMIT', 0, left)
  for _, event in ipairs(old) do
    call('HDEL', prefix .. 'processed:' .. group, event)
    call('ZREM', ages, event)
  end
  left = left - #old
end
return tonumber(ARGV[2]) - left
