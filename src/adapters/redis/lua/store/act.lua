-- Why a script: an operator's statement judges a row, changes it and raises its partition's counter in one step.
-- ARGV: `retry`, `park` or `redrive`, who, why, then ids. Answers how many were changed, and of a single one that was not its status.
local action, who, why = ARGV[1], ARGV[2], ARGV[3]
local allowed = { retry = { FAILED = true, PARKED = true }, park = { PENDING = true, FAILED = true }, redrive = { PARKED = true } }
local changed, status, partitions = 0, '', {}
for at = 4, #ARGV do
  local id = ARGV[at]
  local partition, reason
  status, partition, reason = unpack(call('HMGET', row(id), 's', 'p', 'fr'))
  if status and allowed[action][status] then
    if action == 'park' then
      park(id, status, true)
      -- What made it fail says more than who parked it; that stands in the audit.
      if not reason then call('HSET', row(id), 'fr', 'parked by ' .. who .. (why ~= '' and ': ' .. why or '')) end
    else
      wake(id)
    end
    write_down(action, id, who, why)
    partitions[partition], changed = true, changed + 1
  end
end
for partition in pairs(partitions) do raise(partition) end
return { changed, status or '' }
