-- Why a script: what is forgotten is forgotten everywhere at once. Only rows that have left stand in `sent`.
-- ARGV: keep in ms, limit. Answers how many.
local old = call('ZRANGEBYSCORE', front .. 'sent', '-inf', '(' .. whole(now - tonumber(ARGV[1])), 'LIMIT', 0, ARGV[2])
for _, id in ipairs(old) do
  local event, key = unpack(call('HMGET', row(id), 'ev', 'k'))
  call('DEL', row(id))
  call('HDEL', front .. 'events', event)
  for _, set in ipairs({ 'sent', 'all', 'status:SENT', 'key:' .. key }) do call('ZREM', front .. set, id) end
end
return #old
