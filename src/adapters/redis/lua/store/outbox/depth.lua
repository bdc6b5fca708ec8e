-- A script, because counts and age must be of one moment.
-- ARGV: the number of partitions. Returns the numbers of PENDING, IN_FLIGHT, FAILED, PARKED and SENT rows, and the age in ms of the oldest row
-- that is PENDING, IN_FLIGHT or FAILED and does not wait behind a parked one (empty: there is none).
local depth, oldest = {}, nil

local function consider(id)
  if not id then return end
  local created = tonumber(call('HGET', row_key(id), 'c'))
  oldest = math.min(oldest or created, created)
end

for index, status in ipairs({ 'PENDING', 'IN_FLIGHT', 'FAILED', 'PARKED', 'SENT' }) do
  depth[index] = call('ZCARD', prefix .. 'status:' .. status)
  if status == 'IN_FLIGHT' or status == 'FAILED' then consider(call('ZRANGE', prefix .. 'status:' .. status, 0, 0)[1]) end
end
-- The oldest PENDING row is the first of its key, or a row before it is IN_FLIGHT, FAILED or parked.
for partition = 0, tonumber(ARGV[1]) - 1 do
  consider(call('ZRANGEBYSCORE', prefix .. 'due:' .. partition, '-inf', '(' .. integer(TIMES), 'WITHSCORES', 'LIMIT', 0, 1)[2])
end
depth[6] = oldest and integer(math.max(0, now - oldest)) or ''
return depth
