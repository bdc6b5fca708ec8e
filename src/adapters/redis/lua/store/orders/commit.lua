-- A script, because order, events and record are written in one step or not at all.
-- ARGV: order, expected version or empty, version, status, owner, text, record's field or empty, record's value, then for each event: its
-- id, key, partition, type, entry, payload, extra metadata or empty.
local order, expected, version, status, owner, text = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local stored = call('HGET', prefix .. 'orders', order)
local stored_version, stored_status
if stored then stored_version, stored_status = string.match(stored, '^(%d+) (%S+) ') end
if stored and stored_version ~= expected then return { 'STALE', stored_version } end
if not stored and expected ~= '' then return { 'MISSING' } end
if ARGV[7] ~= '' then
  local idempotency_record = call('HGET', prefix .. 'marks', ARGV[7])
  if idempotency_record then return { 'TAKEN', idempotency_record } end
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
for index = 9, #ARGV, 7 do
  insert_row(ARGV[index], ARGV[index + 1], ARGV[index + 2], ARGV[index + 3], ARGV[index + 4], ARGV[index + 5], ARGV[index + 6])
end
return { 'DONE' }
