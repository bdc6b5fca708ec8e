-- Why a script: judging the fence, choosing rows and counting their attempts are one step.
-- ARGV: partition, owner, epoch, counter, lane, limit, `trial` or `ordinary`, most bytes. A scan in id order that remembers whose turn
-- it is not: no row of a key passes an earlier one that waits or is parked with its key.
local partition, owner, epoch, counter, lane = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local limit, trial, bytes_max = math.max(1, tonumber(ARGV[6])), ARGV[7] == 'trial', tonumber(ARGV[8])
local lease = lease_of(partition)
local valid = lease.owner == owner and lease.epoch == epoch and lease.counter == counter and not lease.token
if not valid or tonumber(lease.expires or '0') <= now then return { 'FENCED' } end

local waiting, taken, picked = {}, {}, {}
local worst, bytes, more, next_due, suspect_due = 0, 0, 0, nil, 0

-- Looks at one row; true ends the scan.
local function look(id)
  local key, status, deaths, head, holds, due = unpack(call('HMGET', row(id), 'k', 's', 'd', 'h', 'hk', 'due'))
  if waiting[key] then return false end
  local suspect = tonumber(deaths) >= 3
  local blocks = status ~= 'PARKED' or holds == '1'
  if blocks and (suspect or head == '1' or trial or status == 'PARKED') then waiting[key] = true end
  if status ~= 'PENDING' and status ~= 'FAILED' then return false end
  local wait = due and tonumber(due) - now or 0
  if wait > 0 then
    next_due = math.min(next_due or wait, wait)
    return false
  end
  if suspect ~= trial then
    if suspect and not taken[key] then suspect_due = 1 end
    return false
  end
  worst = math.max(worst, tonumber(deaths))
  local most = trial and 1 or math.max(1, math.floor(limit / 8 ^ worst))
  if #picked >= most or bytes >= bytes_max then
    more = trial and 0 or 1
    return true
  end
  picked[#picked + 1], taken[key] = id, true
  bytes = bytes + call('HSTRLEN', row(id), 'y')
  return trial
end

local from, over = 0, false
while not over do
  local ids = call('ZRANGE', front .. 'live:' .. partition, from, from + 511)
  if #ids == 0 then break end
  from = from + #ids
  for _, id in ipairs(ids) do
    over = look(id)
    if over then break end
  end
end
if #picked == 0 then return { 'NOTHING', next_due and whole(next_due) or '', suspect_due } end

local token = raise(partition)
call('HSET', lease.name, 'token', token, 'lane', lane, 'claimed', epoch, 'died', 0, 'trial', trial and 1 or 0)
local rows = {}
for place, id in ipairs(picked) do
  move(id, call('HGET', row(id), 's'), 'IN_FLIGHT')
  call('HINCRBY', row(id), 'a', 1)
  call('HSET', row(id), 'tok', token, 'own', owner)
  call('HDEL', row(id), 'due')
  call('ZADD', front .. 'flight:' .. partition, id, id)
  local told = call('HMGET', row(id), 'ev', 'k', 'ty', 'e', 'y', 'a', 'c')
  told[8] = id
  rows[place] = told
end
return { 'BATCH', token, more, rows }
