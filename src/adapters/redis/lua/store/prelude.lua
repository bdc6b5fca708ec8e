-- Every script of the store begins with this. KEYS: the installation's front, whose hash tag keeps everything in one slot. Time is the
-- server's. Rows: one hash each, and sorted sets by id that say who stands where (`live:P`, `flight:P`, `status:S`, `key:K`, `all`).
local call, front = redis.call, KEYS[1]
local clock = call('TIME')
local now = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)

local function whole(number) return string.format('%.0f', number) end
local function row(id) return front .. 'row:' .. id end

local function lease_of(partition)
  local names = { 'owner', 'epoch', 'counter', 'expires', 'token', 'lane', 'claimed', 'died', 'trial', 'closed' }
  local values = call('HMGET', front .. 'lease:' .. partition, unpack(names))
  local lease = { name = front .. 'lease:' .. partition }
  for place, name in ipairs(names) do lease[name] = values[place] end
  lease.epoch, lease.counter = lease.epoch or '0', lease.counter or '0'
  return lease
end

local function raise(partition) return whole(call('HINCRBY', front .. 'lease:' .. partition, 'counter', 1)) end

-- Closes the open batch; answers the counter to name next.
local function close(lease, partition)
  call('HSET', lease.name, 'closed', lease.token)
  call('HDEL', lease.name, 'token', 'lane', 'claimed', 'died', 'trial')
  return raise(partition)
end

-- A lost answer may be asked for again.
local function repeated(lease, owner, epoch, token)
  if lease.owner == owner and lease.epoch == epoch and not lease.token and lease.closed == token then
    return { 'DONE', lease.counter, 0 }
  end
  return { 'STALE' }
end

local function move(id, from, to)
  call('ZREM', front .. 'status:' .. from, id)
  call('ZADD', front .. 'status:' .. to, id, id)
  call('HSET', row(id), 's', to)
end

local function wait_until(id, from, due)
  move(id, from, 'FAILED')
  call('HSET', row(id), 'due', whole(due), 'h', 1)
end

local function park(id, from, with_key)
  move(id, from, 'PARKED')
  call('HSET', row(id), 'hk', with_key and 1 or 0)
  call('HDEL', row(id), 'due')
end

-- Back in line as before the claim: a head keeps its block.
local function give_back(id)
  if call('HGET', row(id), 'h') == '1' then
    wait_until(id, 'IN_FLIGHT', now)
  else
    move(id, 'IN_FLIGHT', 'PENDING')
    call('HDEL', row(id), 'due')
  end
end

local function in_flight(partition) return call('ZRANGE', front .. 'flight:' .. partition, 0, -1) end

-- It has left: out of the relay's way, kept for `outbox.retention`.
local function archive(id, partition)
  move(id, 'IN_FLIGHT', 'SENT')
  call('HSET', row(id), 'sent', whole(now))
  for _, set in ipairs({ 'flight:', 'live:', 'died:' }) do call('ZREM', front .. set .. partition, id) end
  call('ZADD', front .. 'sent', now, id)
end

-- A row as operators see it.
local function shown(id)
  local told = call('HMGET', row(id), 'ev', 'k', 'ty', 'p', 's', 'own', 'tok', 'a', 'due', 'ft', 'fr', 'c', 'sent', 'd', 'fb', 'tp', 'to', 'tt')
  told[19] = id
  return told
end

local function write_down(action, id, who, why)
  call('RPUSH', front .. 'audit', cjson.encode({ at = whole(now), action = action, row = id, who = who, why = why }))
end

-- Due now: a parked row begins anew, but one that was convicted of deaths stays a suspect.
local function wake(id)
  local status = call('HGET', row(id), 's')
  if status == 'PARKED' then call('HSET', row(id), 'a', 0, 't', 0) end
  wait_until(id, status, now)
end
