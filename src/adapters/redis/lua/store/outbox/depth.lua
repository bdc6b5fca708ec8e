-- A script, because counts and age must be of one moment.
-- ARGV: the number of partitions. Returns the numbers of PENDING, IN_FLIGHT, FAILED, PARKED and SENT rows, and the age in ms of the oldest row
-- that is PENDING, IN_FLIGHT or FAILED and does not wait behind a parked one (empty: there is none).
local depth, oldest = {}, nil

local function update_oldest(id)
  if not id then return end
  local created = tonumber(call('HGET', row_key(id), 'c'))
  oldest = math.min(oldest or created, created)
end

-- The first FAILED row that does not wait behind a parked one. Among the first 4,096 of them, so that the script is short.
local function first_failed()
  for from = 0, 4095, 64 do
    local ids = call('ZRANGE', prefix .. 'status:FAILED', from, from + 63)
    for _, id in ipairs(ids) do
      local first = call('ZRANGE', prefix .. 'queue:' .. call('HGET', row_key(id), 'k'), 0, 0)[1]
      if not first or call('HGET', row_key(first), 's') ~= 'PARKED' then return id end
    end
    if #ids < 64 then return nil end
  end
end

for index, status in ipairs({ 'PENDING', 'IN_FLIGHT', 'FAILED', 'PARKED', 'SENT' }) do
  depth[index] = call('ZCARD', prefix .. 'status:' .. status)
end
update_oldest(call('ZRANGE', prefix .. 'status:IN_FLIGHT', 0, 0)[1])
update_oldest(first_failed())
-- The oldest PENDING row is the first of its key, or a row before it is IN_FLIGHT, FAILED or parked.
for partition = 0, tonumber(ARGV[1]) - 1 do
  update_oldest(call('ZRANGEBYSCORE', prefix .. 'due:' .. partition, '-inf', '(' .. integer(TIME_SCORE_MIN), 'WITHSCORES', 'LIMIT', 0, 1)[2])
end
depth[6] = oldest and integer(math.max(0, now - oldest)) or ''
return depth
