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
local function put(index, id, belongs, score)
  local name = prefix .. index
  repairs = repairs + (belongs and call('ZADD', name, 'NX', score or id, id) or call('ZREM', name, id))
end

local function open_token(of)
  if tokens[of] == nil then tokens[of] = call('HGET', prefix .. 'lease:' .. of, 'token') end
  return tokens[of]
end

-- Removes an id without a row from the indexes whose names are known. The queue of its key drops it when it comes first.
local function forget(id, of)
  for _, index in ipairs({ 'all', 'sent' }) do put(index, id, false) end
  for _, status in ipairs({ 'PENDING', 'IN_FLIGHT', 'FAILED', 'PARKED', 'SENT' }) do put('status:' .. status, id, false) end
  for _, index in ipairs(of and { 'live:', 'flight:', 'died:' } or {}) do put(index .. of, id, false) end
end

-- Compares one row with its indexes; `of` is the partition whose index names it, if one does. Returns whether the row exists.
local function check(id, of)
  local fields = call('HMGET', row_key(id), 's', 'p', 'k', 'hk', 'ev', 'tok', 'sent')
  local status, own, key, parked_block, event, token, sent = unpack(fields)
  if not (status and own and key) then
    forget(id, of)
    return false
  end
  if status == 'IN_FLIGHT' and open_token(own) ~= token then
    -- No batch contains this row: nothing would settle or resolve it.
    put('flight:' .. own, id, false)
    restore_state(id)
    increment_counter(own)
    repairs, status = repairs + 1, call('HGET', row_key(id), 's')
  end
  local unsent = status ~= 'SENT'
  if of and of ~= own then put('live:' .. of, id, false) end
  for _, other in ipairs({ 'PENDING', 'IN_FLIGHT', 'FAILED', 'PARKED', 'SENT' }) do put('status:' .. other, id, other == status) end
  put('all', id, true)
  put('key:' .. key, id, true)
  put('live:' .. own, id, unsent)
  put('flight:' .. own, id, status == 'IN_FLIGHT')
  put('queue:' .. key, id, keeps_place(status, parked_block))
  put('sent', id, not unsent, sent or now)
  if event and call('HGET', prefix .. 'events', event) ~= id then
    call('HSET', prefix .. 'events', event, id)
    repairs = repairs + 1
  end
  keys[key] = own
  return true
end

local left = page
while left > 0 and partition < partitions do
  local of = integer(partition)
  local ids = call('ZRANGEBYSCORE', prefix .. 'live:' .. of, '(' .. after, '+inf', 'LIMIT', 0, left)
  for _, id in ipairs(ids) do check(id, of) end
  if #ids < left then partition, after = partition + 1, '0' else after = ids[#ids] end
  left = left - math.max(#ids, 1)
end

-- Ids are drawn one after the other, so a row that no index contains is found among its neighbours. A page without any row ends before the
-- next row that is known.
local last = tonumber(call('GET', prefix .. 'last_row') or '0')
local upto, found = math.min(history + page, last), false
for id = history + 1, upto do found = check(integer(id)) or found end
if not found then
  local known = call('ZRANGEBYSCORE', prefix .. 'all', '(' .. integer(upto), '+inf', 'LIMIT', 0, 1)[1]
  upto = known and tonumber(known) - 1 or last
end

for key, of in pairs(keys) do
  local before = call('ZSCORE', prefix .. 'due:' .. of, key)
  repairs = repairs + refresh_key(of, key)
  if call('ZSCORE', prefix .. 'due:' .. of, key) ~= before then repairs = repairs + 1 end
end
return { 'DONE', repairs, integer(partition), after, upto >= last and '0' or integer(upto) }
