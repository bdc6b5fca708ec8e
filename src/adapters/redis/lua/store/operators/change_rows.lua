-- A script, because an operator's statement checks a row's status, changes the row, writes the audit and increments its partition's
-- counter in one step.
-- ARGV: `retry`, `park` or `redrive`, operator, operator's reason, the statuses that the action applies to, the failure reason of a parked
-- row that has not failed, then ids. Returns the number of changed rows and the last row's status before (empty: there is no such row).
local action, operator, reason, parked_reason = ARGV[1], ARGV[2], ARGV[3], ARGV[5]
local applies = {}
for status in string.gmatch(ARGV[4], '%S+') do applies[status] = true end

local function make_due(id, status)
  -- Deaths stay: a row that was parked as poison is still claimed only by a trial.
  if status == 'PARKED' then call('HSET', row_key(id), 'a', 0, 't', 0) end
  set_failed(id, status, now)
end

local changed, status, partitions = 0, '', {}
for index = 6, #ARGV do
  local id = ARGV[index]
  local partition, failure_type
  status, partition, failure_type = unpack(call('HMGET', row_key(id), 's', 'p', 'ft'))
  if status and applies[status] then
    if action == 'park' then
      set_parked(id, status, true)
      -- A reason without a failure is that of an earlier parking.
      if not failure_type then call('HSET', row_key(id), 'fr', parked_reason) end
    else
      make_due(id, status)
    end
    call('RPUSH', prefix .. 'audit', cjson.encode({ at = integer(now), action = action, row = id, who = operator, why = reason }))
    partitions[partition], changed = true, changed + 1
  end
end
refresh_changed_keys()
for partition in pairs(partitions) do increment_counter(partition) end
return { changed, status or '' }
