-- A script, because checking the fence, choosing rows and counting their attempts are one step.
-- ARGV: partition, owner, epoch, counter, producer session, limit, `trial` or `ordinary`. Scans in id order and remembers the blocked
-- keys: no row of a key passes an earlier one that is not due or that is parked with its key.
local partition, owner, epoch, counter, session = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local limit, trial = math.max(1, tonumber(ARGV[6])), ARGV[7] == 'trial'
local lease = read_lease(partition)
local valid = lease.owner == owner and lease.epoch == epoch and lease.counter == counter and not lease.token
if not valid or tonumber(lease.expires or '0') <= now then return { 'FENCED' } end

local blocked, claimed_keys, claimed = {}, {}, {}
local deaths_max, bytes, more, next_due, suspect_due = 0, 0, 0, nil, 0

-- Claims or skips one row. Returns true when the scan must end.
local function visit(id)
  local key, status, deaths, failed_block, parked_block, due = unpack(call('HMGET', row_key(id), 'k', 's', 'd', 'h', 'hk', 'due'))
  if blocked[key] then return false end
  local suspect = tonumber(deaths) >= SUSPECT_DEATHS
  local may_block = status ~= 'PARKED' or parked_block == '1'
  if may_block and (suspect or failed_block == '1' or trial or status == 'PARKED') then blocked[key] = true end
  if status ~= 'PENDING' and status ~= 'FAILED' then return false end
  local due_in = due and tonumber(due) - now or 0
  if due_in > 0 then
    next_due = math.min(next_due or due_in, due_in)
    return false
  end
  if suspect ~= trial then
    if suspect and not claimed_keys[key] then suspect_due = 1 end
    return false
  end
  deaths_max = math.max(deaths_max, tonumber(deaths))
  local rows_max = trial and 1 or math.max(1, math.floor(limit / CLAIM_SHRINK ^ deaths_max))
  if #claimed >= rows_max or bytes >= BATCH_BYTES_MAX then
    more = trial and 0 or 1
    return true
  end
  claimed[#claimed + 1], claimed_keys[key] = id, true
  bytes = bytes + call('HSTRLEN', row_key(id), 'y')
  return trial
end

local from, ended = 0, false
while not ended do
  local ids = call('ZRANGE', prefix .. 'live:' .. partition, from, from + 511)
  if #ids == 0 then break end
  from = from + #ids
  for _, id in ipairs(ids) do
    ended = visit(id)
    if ended then break end
  end
end
if #claimed == 0 then return { 'NOTHING', next_due and integer(next_due) or '', suspect_due } end

local token = increment_counter(partition)
call('HSET', lease.name, 'token', token, 'lane', session, 'claimed', epoch, 'died', 0, 'trial', trial and 1 or 0)
local rows = {}
for index, id in ipairs(claimed) do
  set_status(id, call('HGET', row_key(id), 's'), 'IN_FLIGHT')
  call('HINCRBY', row_key(id), 'a', 1)
  call('HSET', row_key(id), 'tok', token, 'own', owner)
  call('HDEL', row_key(id), 'due')
  call('ZADD', prefix .. 'flight:' .. partition, id, id)
  local row = call('HMGET', row_key(id), 'ev', 'k', 'ty', 'e', 'y', 'a', 'c')
  row[8] = id
  rows[index] = row
end
return { 'BATCH', token, more, rows }
