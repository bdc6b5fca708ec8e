-- A script, because a row, the row that blocks it and its partition's owner must be of one moment. It reads what is not SENT and no history:
-- a key may keep a million SENT rows.
-- ARGV: `event` or `key`, its value. Of a key it diagnoses the first row that is not SENT, else the last one. Returns the row, the row
-- that blocks it (empty: none), owner, epoch, metadata; nothing when there is no row.
local function first_queued(key)
  local from = 0
  while true do
    local ids = call('ZRANGE', prefix .. 'queue:' .. key, from, from + 63)
    for _, id in ipairs(ids) do
      if belongs_in_queue(unpack(call('HMGET', row_key(id), 's', 'hk'))) then return id end
    end
    if #ids < 64 then return nil end
    from = from + 64
  end
end
-- Rows that are parked without blocking their key are not in its queue.
local function first_parked(key)
  local ids, others = prefix .. 'key:' .. key, prefix .. 'status:PARKED'
  if call('ZCARD', ids) > call('ZCARD', others) then ids, others = others, ids end
  for _, id in ipairs(call('ZRANGE', ids, 0, -1)) do
    if call('ZSCORE', others, id) then return id end
  end
end
local id
if ARGV[1] == 'event' then
  id = call('HGET', prefix .. 'events', ARGV[2])
else
  local first, parked = first_queued(ARGV[2]), first_parked(ARGV[2])
  if first and parked then
    id = tonumber(first) < tonumber(parked) and first or parked
  else
    id = first or parked or call('ZREVRANGE', prefix .. 'key:' .. ARGV[2], 0, 0)[1]
  end
end
if not id or call('EXISTS', row_key(id)) == 0 then return {} end
local key, status, partition = unpack(call('HMGET', row_key(id), 'k', 's', 'p'))
local head = {}
if status ~= 'SENT' then
  local first = first_queued(key)
  if first and tonumber(first) < tonumber(id) then head = row_view(first) end
end
local lease = read_lease(partition)
return { row_view(id), head, lease.owner or '', lease.epoch, call('HGET', row_key(id), 'e') }
