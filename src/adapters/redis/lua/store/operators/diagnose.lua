-- A script, because a row, the row that blocks it and its partition's owner must be of one moment.
-- ARGV: `event` or `key`, its value. Of a key it diagnoses the first row that is not SENT, else the last one. Returns the row, the row
-- that blocks it (empty: none), owner, epoch; nothing when there is no row.
local id
if ARGV[1] == 'event' then
  id = call('HGET', prefix .. 'events', ARGV[2])
else
  local last
  for _, candidate in ipairs(call('ZRANGE', prefix .. 'key:' .. ARGV[2], 0, -1)) do
    last = candidate
    if call('HGET', row_key(candidate), 's') ~= 'SENT' then id = candidate break end
  end
  id = id or last
end
if not id or call('EXISTS', row_key(id)) == 0 then return {} end
local key, status, partition = unpack(call('HMGET', row_key(id), 'k', 's', 'p'))
local head = {}
if status ~= 'SENT' then
  for _, earlier in ipairs(call('ZRANGEBYSCORE', prefix .. 'key:' .. key, '-inf', '(' .. id)) do
    local earlier_status, parked_block = unpack(call('HMGET', row_key(earlier), 's', 'hk'))
    if earlier_status ~= 'SENT' and (earlier_status ~= 'PARKED' or parked_block == '1') then head = row_view(earlier) break end
  end
end
local lease = read_lease(partition)
return { row_view(id), head, lease.owner or '', lease.epoch }
