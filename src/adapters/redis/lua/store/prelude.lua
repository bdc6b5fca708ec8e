-- Every script of the store begins with the constants of the outbox's rules and with these functions. KEYS: the installation's key prefix,
-- whose hash tag keeps all keys in one slot. Time is the server's. A row is one hash; sorted sets of row ids are the indexes: `live:P` and
-- `flight:P` by partition, `died:P` with the rows of a partition whose claimer died, `status:S`, `key:K`, `sent` by time, `all`.
-- Fields of a row: s status, p partition, k key, ev event, ty type, e entry, y payload, c created, a attempts, d deaths, t trial deaths,
-- h 1 if it blocks its key while it is FAILED, hk 1 if it blocks its key while it is PARKED, due, own owner, tok token, ft failure type,
-- fr failure reason, sent, fb 1 if it went by fallback, tp, to and tt partition, offset and topic of its record.
local call, prefix = redis.call, KEYS[1]
local clock = call('TIME')
local now = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)

-- The text of a number without a fraction or an exponent.
local function integer(number) return string.format('%.0f', number) end

local function row_key(id) return prefix .. 'row:' .. id end

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

local function set_status(id, from, to)
  call('ZREM', prefix .. 'status:' .. from, id)
  call('ZADD', prefix .. 'status:' .. to, id, id)
  call('HSET', row_key(id), 's', to)
end

local function set_failed(id, from, due)
  set_status(id, from, 'FAILED')
  call('HSET', row_key(id), 'due', integer(due), 'h', 1)
end

local function set_parked(id, from, blocks_key)
  set_status(id, from, 'PARKED')
  call('HSET', row_key(id), 'hk', blocks_key and 1 or 0)
  call('HDEL', row_key(id), 'due')
end

local function set_pending(id, from)
  set_status(id, from, 'PENDING')
  call('HDEL', row_key(id), 'due', 'h')
end

-- The state before the claim: a row that blocks its key keeps its block.
local function restore_state(id)
  if call('HGET', row_key(id), 'h') == '1' then
    set_failed(id, 'IN_FLIGHT', now)
  else
    set_pending(id, 'IN_FLIGHT')
  end
end

local function in_flight_ids(partition) return call('ZRANGE', prefix .. 'flight:' .. partition, 0, -1) end

-- A published row: the relay no longer scans it, the sweep deletes it after `outbox.retention`.
local function archive(id, partition)
  set_status(id, 'IN_FLIGHT', 'SENT')
  call('HSET', row_key(id), 'sent', integer(now))
  for _, set in ipairs({ 'flight:', 'live:', 'died:' }) do call('ZREM', prefix .. set .. partition, id) end
  call('ZADD', prefix .. 'sent', now, id)
end

-- A row as operators read it, with its id at the end.
local function row_view(id)
  local view = call('HMGET', row_key(id), 'ev', 'k', 'ty', 'p', 's', 'own', 'tok', 'a', 'due', 'ft', 'fr', 'c', 'sent', 'd', 'fb', 'tp', 'to', 'tt')
  view[19] = id
  return view
end
