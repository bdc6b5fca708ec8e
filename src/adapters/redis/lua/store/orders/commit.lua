-- A script, because order, events and mark are written in one step or not at all.
-- ARGV: order, expected version or empty, version, status, owner, text, mark's field or empty, mark's value, then for each event: its
-- id, key, partition, type, entry, payload, headers and the like or empty.
local order, expected, version, status, owner, text = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local stored = call('HGET', prefix .. 'orders', order)
local stored_version, stored_status
if stored then stored_version, stored_status = string.match(stored, '^(%d+) (%S+) ') end
if stored and stored_version ~= expected then return { 'STALE', stored_version } end
if not stored and expected ~= '' then return { 'MISSING' } end
if ARGV[7] ~= '' then
  local mark = call('HGET', prefix .. 'marks', ARGV[7])
  if mark then return { 'TAKEN', mark } end
  call('HSET', prefix .. 'marks', ARGV[7], ARGV[8])
  call('ZADD', prefix .. 'marks:age', now, ARGV[7])
end
call('HSET', prefix .. 'orders', order, version .. ' ' .. status .. ' ' .. text)
local lists = { 'orders:all', 'orders:of:' .. owner }
for _, list in ipairs(lists) do call('ZADD', prefix .. list, 0, order) end
if stored_status ~= status then
  if stored_status then
    call('ZREM', prefix .. 'orders:in:' .. stored_status, order)
    call('ZREM', prefix .. 'orders:of:' .. owner .. '\0' .. stored_status, order)
  end
  call('ZADD', prefix .. 'orders:in:' .. status, 0, order)
  call('ZADD', prefix .. 'orders:of:' .. owner .. '\0' .. status, 0, order)
end
for at = 9, #ARGV, 7 do
  local id = integer(call('INCR', prefix .. 'last_row'))
  local event, key, partition = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  call('HSET', row_key(id), 's', 'PENDING', 'p', partition, 'k', key, 'ev', event, 'ty', ARGV[at + 3], 'e', ARGV[at + 4], 'y', ARGV[at + 5],
    'c', integer(now), 'a', 0, 'd', 0, 't', 0)
  if ARGV[at + 6] ~= '' then call('HSET', row_key(id), 'xm', ARGV[at + 6]) end
  call('HSET', prefix .. 'events', event, id)
  for _, set in ipairs({ 'all', 'status:PENDING', 'live:' .. partition, 'key:' .. key, 'queue:' .. key }) do
    call('ZADD', prefix .. set, id, id)
  end
  -- Behind another row of its key it is not due, whatever that row waits for.
  if call('ZCARD', prefix .. 'queue:' .. key) == 1 then call('ZADD', prefix .. 'due:' .. partition, id, key) end
end
return { 'DONE' }
