-- A script, because an index is compared with its rows at one moment. It corrects indexes by their rows, and changes a row only if no batch
-- can contain it any more.
-- ARGV: the caller's boot id and the ms for which it audits alone (both empty: several callers may audit), the number of partitions, rows
-- of a page, the partition and the row after which the unsent rows go on, the row after which all rows go on. Returns `HELD` if another
-- caller audits; else `DONE`, the number of repairs, the partition and the row after which the unsent rows go on (the number of partitions
-- at their end), and the row after which all rows go on (0 at their end).
local boot, auditor_ttl, partitions, page = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local partition, after, history = tonumber(ARGV[5]), ARGV[6], tonumber(ARGV[7])
if boot ~= '' then
  local auditor = call('GET', prefix .. 'auditor')
  if auditor and auditor ~= boot then return { 'HELD' } end
  call('SET', prefix .. 'auditor', boot, 'PX', auditor_ttl)
end

local repairs, keys, tokens = 0, {}, {}

-- Adds an id to an index that must contain it, or removes it.
local function correct_entry(index, id, belongs, score)
  local name = prefix .. index
  repairs = repairs + (belongs and call('ZADD', name, 'NX', score or id, id) or call('ZREM', name, id))
end

local function open_token(of_partition)
  if tokens[of_partition] == nil then tokens[of_partition] = call('HGET', prefix .. 'lease:' .. of_partition, 'token') end
  return tokens[of_partition]
end

-- Removes an id without a row from the indexes whose names are known. The queue of its key removes it when it comes first.
local function remove_orphan(id, listed_in)
  for _, index in ipairs({ 'all', 'sent' }) do correct_entry(index, id, false) end
  for _, status in ipairs({ 'PENDING', 'IN_FLIGHT', 'FAILED', 'PARKED', 'SENT' }) do correct_entry('status:' .. status, id, false) end
  for _, index in ipairs(listed_in and { 'live:', 'flight:', 'died:' } or {}) do correct_entry(index .. listed_in, id, false) end
end

-- Compares one row with its indexes; `listed_in` is the partition whose index contains it, if one does. Returns whether the row exists.
local function check(id, listed_in)
  local fields = call('HMGET', row_key(id), 's', 'p', 'k', 'hk', 'ev', 'tok', 'sent')
  local status, own, key, parked_block, event, token, sent = unpack(fields)
  if not (status and own and key) then
    remove_orphan(id, listed_in)
    return false
  end
  if status == 'IN_FLIGHT' and open_token(own) ~= token then
    -- No batch contains this row: nothing would settle or resolve it.
    correct_entry('flight:' .. own, id, false)
    restore_state(id)
    increment_counter(own)
    repairs, status = repairs + 1, call('HGET', row_key(id), 's')
  end
  local unsent = status ~= 'SENT'
  if listed_in and listed_in ~= own then correct_entry('live:' .. listed_in, id, false) end
  for _, other in ipairs({ 'PENDING', 'IN_FLIGHT', 'FAILED', 'PARKED', 'SENT' }) do correct_entry('status:' .. other, id, other == status) end
  correct_entry('all', id, true)
  correct_entry('key:' .. key, id, true)
  correct_entry('live:' .. own, id, unsent)
  correct_entry('flight:' .. own, id, status == 'IN_FLIGHT')
  correct_entry('queue:' .. key, id, belongs_in_queue(status, parked_block))
  correct_entry('sent', id, not unsent, sent or now)
  if event and call('HGET', prefix .. 'events', event) ~= id then
    call('HSET', prefix .. 'events', event, id)
    repairs = repairs + 1
  end
  keys[key] = own
  return true
end

local left = page
while left > 0 and partition < partitions do
  local current = integer(partition)
  local ids = call('ZRANGEBYSCORE', prefix .. 'live:' .. current, '(' .. after, '+inf', 'LIMIT', 0, left)
  for _, id in ipairs(ids) do check(id, current) end
  if #ids < left then partition, after = partition + 1, '0' else after = ids[#ids] end
  left = left - math.max(#ids, 1)
end

-- Ids are assigned one after the other, so a row that no index contains is found among its neighbours. A page without any row ends before the
-- next row that is known.
local last = tonumber(call('GET', prefix .. 'last_row') or '0')
local upto, found = math.min(history + page, last), false
for id = history + 1, upto do found = check(integer(id)) or found end
if not found then
  local known = call('ZRANGEBYSCORE', prefix .. 'all', '(' .. integer(upto), '+inf', 'LIMIT', 0, 1)[1]
  upto = known and tonumber(known) - 1 or last
end

for key, own in pairs(keys) do
  local before = call('ZSCORE', prefix .. 'due:' .. own, key)
  repairs = repairs + refresh_key(own, key)
  if call('ZSCORE', prefix .. 'due:' .. own, key) ~= before then repairs = repairs + 1 end
end
return { 'DONE', repairs, integer(partition), after, upto >= last and '0' or integer(upto) }
