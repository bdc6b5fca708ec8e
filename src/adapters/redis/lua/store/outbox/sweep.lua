-- A script, because a row and its index entries are deleted in one step. The set `sent` holds only SENT rows.
-- ARGV: retention in ms, limit. Returns the number of deleted rows.
local old = call('ZRANGEBYSCORE', prefix .. 'sent', '-inf', '(' .. integer(now - tonumber(ARGV[1])), 'LIMIT', 0, ARGV[2])
for _, id in ipairs(old) do
  local event, key = unpack(call('HMGET', row_key(id), 'ev', 'k'))
  call('DEL', row_key(id))
  call('HDEL', prefix .. 'events', event)
  for _, set in ipairs({ 'sent', 'all', 'status:SENT', 'key:' .. key }) do call('ZREM', prefix .. set, id) end
end
return #old
