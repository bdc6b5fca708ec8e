-- Why a script: state, events and mark are one step, or none.
-- ARGV: order, expected version or empty, version, status, owner, text, mark's field or empty, mark's value, then for each event: its
-- id, key, partition, type, entry, payload.
local order, expected, version, status, owner, text = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local known = call('HGET', front .. 'orders', order)
local stands, was
if known then stands, was = string.match(known, '^(%d+) (%S+) ') end
if known and stands ~= expected then return { 'STALE', stands } end
if not known and expected ~= '' then return { 'MISSING' } end
if ARGV[7] ~= '' then
  local taken = call('HGET', front .. 'marks', ARGV[7])
  if taken then return { 'TAKEN', taken } end
  call('HSET', front .. 'marks', ARGV[7], ARGV[8])
  call('ZADD', front .. 'marks:age', now, ARGV[7])
end
call('HSET', front .. 'orders', order, version .. ' ' .. status .. ' ' .. text)
local lists = { 'orders:all', 'orders:of:' .. owner }
for _, list in ipairs(lists) do call('ZADD', front .. list, 0, order) end
if was ~= status then
  if was then
    call('ZREM', front .. 'orders:in:' .. was, order)
    call('ZREM', front .. 'orders:of:' .. owner .. '\0' .. was, order)
  end
  call('ZADD', front .. 'orders:in:' .. status, 0, order)
  call('ZADD', front .. 'orders:of:' .. owner .. '\0' .. status, 0, order)
end
for at = 9, #ARGV, 6 do
  local id = whole(call('INCR', front .. 'last_row'))
  local event, key, partition = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  call('HSET', row(id), 's', 'PENDING', 'p', partition, 'k', key, 'ev', event, 'ty', ARGV[at + 3], 'e', ARGV[at + 4], 'y', ARGV[at + 5],
    'c', whole(now), 'a', 0, 'd', 0, 't', 0)
  call('HSET', front .. 'events', event, id)
  for _, set in ipairs({ 'all', 'status:PENDING', 'live:' .. partition, 'key:' .. key }) do call('ZADD', front .. set, id, id) end
end
return { 'DONE' }
