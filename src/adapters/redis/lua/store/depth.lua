-- Why a script: counts and age of one moment.
-- Answers PENDING, IN_FLIGHT, FAILED, PARKED, SENT, and the age in ms of the oldest row that is to go (empty: there is none).
local told, oldest = {}, nil
for place, status in ipairs({ 'PENDING', 'IN_FLIGHT', 'FAILED', 'PARKED', 'SENT' }) do
  told[place] = call('ZCARD', front .. 'status:' .. status)
  local first = place <= 3 and call('ZRANGE', front .. 'status:' .. status, 0, 0)[1]
  if first then
    local created = tonumber(call('HGET', row(first), 'c'))
    oldest = math.min(oldest or created, created)
  end
end
told[6] = oldest and whole(math.max(0, now - oldest)) or ''
return told
