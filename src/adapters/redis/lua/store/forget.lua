-- Why a script: what was consumed is forgotten by the server's clock, in the step that looks.
-- ARGV: keep in ms, limit. Answers how many, over all groups.
local left = tonumber(ARGV[2])
for _, group in ipairs(call('SMEMBERS', front .. 'groups')) do
  if left <= 0 then break end
  local ages = front .. 'processed:age:' .. group
  local old = call('ZRANGEBYSCORE', ages, '-inf', '(' .. whole(now - tonumber(ARGV[1])), 'LIMIT', 0, left)
  for _, event in ipairs(old) do
    call('HDEL', front .. 'processed:' .. group, event)
    call('ZREM', ages, event)
  end
  left = left - #old
end
return tonumber(ARGV[2]) - left
