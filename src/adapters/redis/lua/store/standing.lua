-- Why a script: a row, the one before it and its partition's owner of one moment.
-- ARGV: `event` or `key`, which. Answers the row, the row it waits behind (empty: none), owner, epoch; nothing where there is no row.
local id
if ARGV[1] == 'event' then
  id = call('HGET', front .. 'events', ARGV[2])
else
  local last
  for _, one in ipairs(call('ZRANGE', front .. 'key:' .. ARGV[2], 0, -1)) do
    last = one
    if call('HGET', row(one), 's') ~= 'SENT' then id = one break end
  end
  id = id or last
end
if not id or call('EXISTS', row(id)) == 0 then return {} end
local key, status, partition = unpack(call('HMGET', row(id), 'k', 's', 'p'))
local head = {}
if status ~= 'SENT' then
  for _, one in ipairs(call('ZRANGEBYSCORE', front .. 'key:' .. key, '-inf', '(' .. id)) do
    local stands, holds = unpack(call('HMGET', row(one), 's', 'hk'))
    if stands ~= 'SENT' and (stands ~= 'PARKED' or holds == '1') then head = shown(one) break end
  end
end
local lease = lease_of(partition)
return { shown(id), head, lease.owner or '', lease.epoch }
