-- A script, because checking the fence, choosing rows and counting their attempts are one step.
-- ARGV: partition, owner, epoch, counter, producer session, limit, `trial` or `ordinary`. Reads the keys that are due, those of failed rows
-- first, and of each key its rows in order: no row passes an earlier one of its key that is not due or that is parked with its key. Keys
-- that are not due are not read.
local partition, owner, epoch, counter, session = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local limit, trial = math.max(1, tonumber(ARGV[6])), ARGV[7] == 'trial'
local lease = read_lease(partition)
local valid = lease.owner == owner and lease.epoch == epoch and lease.counter == counter and not lease.token
if not valid or tonumber(lease.expires or '0') <= now then return { 'FENCED' } end

local claimed, claimed_keys, deaths_max, bytes, more, suspect_due = {}, {}, 0, 0, 0, 0
-- Entries of a damaged index: keys that are not due, and rows that do not belong in a queue. They are corrected after the scan, because
-- it counts positions.
local keys_not_due, rows_not_queued = {}, {}

-- Claims or skips one row. Returns `row` to go on with its key's next row, `key` with the next key, `not_due` with the next key
-- if its first row is not due, `end` when the batch is complete.
local function visit(key, id)
  local status, deaths, failed_block, parked_block, due = unpack(call('HMGET', row_key(id), 's', 'd', 'h', 'hk', 'due'))
  if not belongs_in_queue(status, parked_block) then
    rows_not_queued[#rows_not_queued + 1] = { key, id }
    return 'row'
  end
  local may_be_claimed = status == 'PENDING' or (status == 'FAILED' and tonumber(due or 0) <= now)
  if not may_be_claimed then return claimed_keys[key] and 'key' or 'not_due' end
  local suspect = tonumber(deaths) >= SUSPECT_DEATHS
  if suspect ~= trial then
    if suspect and not claimed_keys[key] then suspect_due = 1 end
    return 'key'
  end
  deaths_max = math.max(deaths_max, tonumber(deaths))
  local rows_max = trial and 1 or math.max(1, math.floor(limit / CLAIM_SHRINK ^ deaths_max))
  if #claimed >= rows_max or bytes >= BATCH_BYTES_MAX then
    more = trial and 0 or 1
    return 'end'
  end
  claimed[#claimed + 1], claimed_keys[key] = id, true
  bytes = bytes + call('HSTRLEN', row_key(id), 'y')
  if trial then return 'end' end
  return failed_block == '1' and 'key' or 'row'
end

local function visit_key(key)
  local from, step = 0, 'row'
  while step == 'row' do
    local ids = call('ZRANGE', prefix .. 'queue:' .. key, from, from + 63)
    if #ids == 0 then break end
    from = from + #ids
    for _, id in ipairs(ids) do
      step = visit(key, id)
      if step ~= 'row' then break end
    end
  end
  local empty = step == 'row' and not claimed_keys[key]
  if step == 'not_due' or empty then keys_not_due[#keys_not_due + 1] = key end
  return step
end

-- Visits the keys with scores in this range. Returns whether the batch is complete.
local function visit_range(least, most)
  local from = 0
  while true do
    local keys = call('ZRANGEBYSCORE', prefix .. 'due:' .. partition, least, most, 'LIMIT', from, 256)
    if #keys == 0 then return false end
    from = from + #keys
    for _, key in ipairs(keys) do
      if visit_key(key) == 'end' then return true end
    end
  end
end

if not visit_range(integer(TIME_SCORE_MIN), integer(now)) then visit_range('-inf', '(' .. integer(TIME_SCORE_MIN)) end
for _, entry in ipairs(rows_not_queued) do call('ZREM', prefix .. 'queue:' .. entry[1], entry[2]) end
for _, key in ipairs(keys_not_due) do refresh_key(partition, key) end
if #claimed == 0 then
  local next_due = call('ZRANGEBYSCORE', prefix .. 'due:' .. partition, '(' .. integer(now), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
  return { 'NONE_DUE', next_due and integer(tonumber(next_due) - now) or '', suspect_due }
end

local token = increment_counter(partition)
call('HSET', lease.name, 'token', token, 'lane', session, 'claimed', epoch, 'died', 0, 'trial', trial and 1 or 0)
for key in pairs(claimed_keys) do call('ZREM', prefix .. 'due:' .. partition, key) end
table.sort(claimed, function(a, b) return tonumber(a) < tonumber(b) end)
local rows = {}
for index, id in ipairs(claimed) do
  set_status(id, call('HGET', row_key(id), 's'), 'IN_FLIGHT')
  count_attempt(id)
  call('HSET', row_key(id), 'tok', token, 'own', owner)
  call('HDEL', row_key(id), 'due')
  call('ZADD', prefix .. 'flight:' .. partition, id, id)
  local row = call('HMGET', row_key(id), 'ev', 'k', 'ty', 'e', 'y', 'a', 'c', 'xm')
  row[9] = id
  rows[index] = row
end
return { 'BATCH', token, more, rows, integer(now) }
