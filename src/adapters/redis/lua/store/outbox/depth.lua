-- A script, because counts and age must be of one moment.
-- Returns the numbers of PENDING, IN_FLIGHT, FAILED, PARKED and SENT rows, and the age in ms of the oldest row that is PENDING, IN_FLIGHT
-- or FAILED (empty: there is none).
local depth, oldest = {}, nil
for index, status in ipairs({ 'PENDING', 'IN_FLIGHT', 'FAILED', 'PARKED', 'SENT' }) do
  depth[index] = call('ZCARD', prefix .. 'status:' .. status)
  local first = index <= 3 and call('ZRANGE', prefix .. 'status:' .. status, 0, 0)[1]
  if first then
    local created = tonumber(call('HGET', row_key(first), 'c'))
    oldest = math.min(oldest or created, created)
  end
end
depth[6] = oldest and integer(math.max(0, now - oldest)) or ''
return depth
