-- Every script of the store begins with the constants of the outbox's rules and with these functions. KEYS: the installation's key prefix,
-- whose hash tag keeps all keys in one slot. Time is the server's. A row is one hash; sorted sets of row ids are the indexes: `live:P` and
-- `flight:P` by partition, `died:P` with the rows of a partition whose claimer died, `status:S`, `key:K`, `sent` by time, `all`.
-- `queue:K` has the rows of a key that may block later ones: all that are not SENT, except those parked with hk 0. `due:P` has the
-- keys of a partition whose first row in the queue may be claimed, scored by the time from which it may be: claims read what is due from it.
-- Fields of a row: s status, p partition, k key, ev event, ty type, e entry, y payload, c created, a attempts, d deaths, t trial deaths,
-- h 1 if it blocks its key while it is FAILED, hk 1 if it blocks its key while it is PARKED, due, own owner, tok token, ft failure type,
-- fr failure reason, la time of the last attempt, lab that of the attempt before, sent, fb 1 if it went by fallback, tp, to and tt partition,
-- offset and topic of its record, xm extra metadata.
local call, prefix = redis.call, KEYS[1]
local clock = call('TIME')
local now = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)

-- The text of a number without a fraction or an exponent.
local function integer(number) return string.format('%.0f', number) end

local function row_key(id) return prefix .. 'row:' .. id end

-- Whether a text comes before another by its bytes. Lua compares texts by the locale of the server.
local function before(one, other)
  for index = 1, math.min(#one, #other) do
    local byte, other_byte = string.byte(one, index), string.byte(other, index)
    if byte ~= other_byte then return byte < other_byte end
  end
  return #one < #other
end

-- Renews the caller's hold on its instance id. Returns whether the caller still holds it.
local function renew_instance_id(instance, boot, pid, dead_after, own_installation, own_partitions)
  local holder, meta = prefix .. 'holder:' .. instance, prefix .. 'meta'
  -- Without an installation or a holder the server has lost them: it was flushed, or a replica that had not received them was promoted. The caller
  -- writes its own again: a process that starts later would install another, and not find the watermarks of this one.
  call('HSETNX', meta, 'installation', own_installation)
  call('HSETNX', meta, 'partitions', own_partitions)
  local installation, partitions = unpack(call('HMGET', meta, 'installation', 'partitions'))
  local known = call('HGET', holder, 'boot') or boot
  if known ~= boot or installation ~= own_installation or partitions ~= own_partitions then return false end
  call('HSET', holder, 'boot', boot, 'pid', pid, 'seen', integer(now), 'dead_after', integer(dead_after))
  return true
end

local function read_lease(partition)
  local fields = { 'owner', 'epoch', 'counter', 'expires', 'token', 'lane', 'claimed', 'died', 'trial', 'closed' }
  local values = call('HMGET', prefix .. 'lease:' .. partition, unpack(fields))
  local lease = { name = prefix .. 'lease:' .. partition }
  for index, field in ipairs(fields) do lease[field] = values[index] end
  lease.epoch, lease.counter = lease.epoch or '0', lease.counter or '0'
  return lease
end

local function increment_counter(partition) return integer(call('HINCRBY', prefix .. 'lease:' .. partition, 'counter', 1)) end

-- Closes the open batch and returns the new counter.
local function close_batch(lease, partition)
  call('HSET', lease.name, 'closed', lease.token)
  call('HDEL', lease.name, 'token', 'lane', 'claimed', 'died', 'trial')
  return increment_counter(partition)
end

-- The result of closing a batch that is not open: DONE if it was the last one closed, because a caller whose reply was lost calls again.
local function repeated_close(lease, owner, epoch, token)
  if lease.owner == owner and lease.epoch == epoch and not lease.token and lease.closed == token then
    return { 'DONE', lease.counter, 0 }
  end
  return { 'STALE' }
end

-- Scores in `due:P`: a FAILED row's is its due time, in ms. A PENDING row may be claimed at any time, also after the clock was set back: its
-- score is its id, which is below every time.
local TIME_SCORE_MIN = 1e12

local function belongs_in_queue(status, parked_block) return status and status ~= 'SENT' and (status ~= 'PARKED' or parked_block == '1') end

-- Scores a key by its first row, or removes it while that row may not be claimed. Rows that do not belong in the queue are removed from the
-- front of the queue; returns their number.
local function refresh_key(partition, key)
  local queue, due, removed = prefix .. 'queue:' .. key, prefix .. 'due:' .. partition, 0
  while true do
    local id = call('ZRANGE', queue, 0, 0)[1]
    if not id then break end
    local status, parked_block, due_at = unpack(call('HMGET', row_key(id), 's', 'hk', 'due'))
    if belongs_in_queue(status, parked_block) then
      local score = status == 'PENDING' and id or status == 'FAILED' and due_at
      if score then call('ZADD', due, score, key) else call('ZREM', due, key) end
      return removed
    end
    removed = removed + call('ZREM', queue, id)
  end
  call('ZREM', due, key)
  return removed
end

-- Partitions of the keys whose queue this script has changed.
local changed_keys = {}

local function set_queued(id, is_queued)
  local key, partition = unpack(call('HMGET', row_key(id), 'k', 'p'))
  if is_queued then call('ZADD', prefix .. 'queue:' .. key, id, id) else call('ZREM', prefix .. 'queue:' .. key, id) end
  changed_keys[key] = partition
end

-- Every script that changes rows by the functions below ends with this.
local function refresh_changed_keys()
  for key, partition in pairs(changed_keys) do refresh_key(partition, key) end
end

local function set_status(id, from, to)
  call('ZREM', prefix .. 'status:' .. from, id)
  call('ZADD', prefix .. 'status:' .. to, id, id)
  call('HSET', row_key(id), 's', to)
end

local function set_failed(id, from, due)
  set_status(id, from, 'FAILED')
  call('HSET', row_key(id), 'due', integer(due), 'h', 1)
  set_queued(id, true)
end

local function set_parked(id, from, blocks_key)
  set_status(id, from, 'PARKED')
  call('HSET', row_key(id), 'hk', blocks_key and 1 or 0)
  call('HDEL', row_key(id), 'due')
  set_queued(id, blocks_key)
end

local function set_pending(id, from)
  set_status(id, from, 'PENDING')
  call('HDEL', row_key(id), 'due', 'h')
  set_queued(id, true)
end

-- The state before the claim: a row that blocks its key keeps its block.
local function restore_state(id)
  if call('HGET', row_key(id), 'h') == '1' then
    set_failed(id, 'IN_FLIGHT', now)
  else
    set_pending(id, 'IN_FLIGHT')
  end
end

-- The time of an attempt is that of its claim. An attempt that does not count gives the time before it back.
local function count_attempt(id)
  call('HINCRBY', row_key(id), 'a', 1)
  call('HSET', row_key(id), 'lab', call('HGET', row_key(id), 'la') or '', 'la', integer(now))
end

local function give_attempt_back(id)
  call('HINCRBY', row_key(id), 'a', -1)
  call('HSET', row_key(id), 'la', call('HGET', row_key(id), 'lab') or '')
end

-- A new row: the newest of its key.
local function insert_row(event, key, partition, kind, entry, payload, extra)
  local id = integer(call('INCR', prefix .. 'last_row'))
  call('HSET', row_key(id), 's', 'PENDING', 'p', partition, 'k', key, 'ev', event, 'ty', kind, 'e', entry, 'y', payload,
    'c', integer(now), 'a', 0, 'd', 0, 't', 0)
  if extra ~= '' then call('HSET', row_key(id), 'xm', extra) end
  call('HSET', prefix .. 'events', event, id)
  for _, set in ipairs({ 'all', 'status:PENDING', 'live:' .. partition, 'key:' .. key, 'queue:' .. key }) do
    call('ZADD', prefix .. set, id, id)
  end
  -- Behind another row of its key it is not due, whatever that row waits for.
  if call('ZCARD', prefix .. 'queue:' .. key) == 1 then call('ZADD', prefix .. 'due:' .. partition, id, key) end
end

-- The rows of the open batch with this token. An index that disagrees with its rows adds none: such a row was never sent.
local function in_flight_ids(partition, token)
  local ids = {}
  for _, id in ipairs(call('ZRANGE', prefix .. 'flight:' .. partition, 0, -1)) do
    local status, row_token = unpack(call('HMGET', row_key(id), 's', 'tok'))
    if status == 'IN_FLIGHT' and row_token == token then ids[#ids + 1] = id end
  end
  return ids
end

-- A published row: the relay no longer scans it, the sweep deletes it after `outbox.retention`.
local function archive(id, partition)
  set_status(id, 'IN_FLIGHT', 'SENT')
  call('HSET', row_key(id), 'sent', integer(now))
  for _, set in ipairs({ 'flight:', 'live:', 'died:' }) do call('ZREM', prefix .. set .. partition, id) end
  call('ZADD', prefix .. 'sent', now, id)
  set_queued(id, false)
end

-- A row as operators read it, with its id at the end.
local function row_view(id)
  local view = call('HMGET', row_key(id), 'ev', 'k', 'ty', 'p', 's', 'own', 'tok', 'a', 'due', 'ft', 'fr', 'c',
    'sent', 'd', 'fb', 'tp', 'to', 'tt', 'la')
  view[20] = id
  return view
end
