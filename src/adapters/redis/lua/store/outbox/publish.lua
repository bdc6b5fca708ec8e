-- A script, because the events of a batch, their numbers and the record are written in one step or not at all.
-- ARGV: record's field or empty, record's value, then for each event: its id, key, partition, type, topic as JSON, the rest of the entry after
-- the time, payload, extra metadata or empty.
if ARGV[1] ~= '' then
  local idempotency_record = call('HGET', prefix .. 'marks', ARGV[1])
  if idempotency_record then return { 'TAKEN', idempotency_record } end
  call('HSET', prefix .. 'marks', ARGV[1], ARGV[2])
  call('ZADD', prefix .. 'marks:age', now, ARGV[1])
end
local reply = { 'DONE' }
for index = 3, #ARGV, 8 do
  local event, key, topic = ARGV[index], ARGV[index + 1], ARGV[index + 4]
  if call('HEXISTS', prefix .. 'events', event) == 1 then
    reply[#reply + 1] = '0'
  else
    local number = integer(call('HINCRBY', prefix .. 'sequence', topic .. ' ' .. key, 1))
    local entry = '[' .. topic .. ',' .. number .. ',' .. integer(now) .. ',' .. ARGV[index + 5]
    insert_row(event, key, ARGV[index + 2], ARGV[index + 3], entry, ARGV[index + 6], ARGV[index + 7])
    reply[#reply + 1] = '1'
  end
end
return reply
