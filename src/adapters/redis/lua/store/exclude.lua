-- Why a script: rows leave an open batch under its token, and their keys' later rows with them, in one step.
-- ARGV: partition, owner, epoch, counter, token, then for each row: id, `retry`, `park` or `alone`, delay in ms, failure type, reason.
local partition, owner, epoch, counter, token = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local lease = lease_of(partition)
if lease.owner ~= owner or lease.epoch ~= epoch or lease.counter ~= counter or lease.token ~= token then return { 'STALE' } end
local named = {}
for at = 6, #ARGV, 5 do named[ARGV[at]] = at end
local stopped, changed = {}, 0
for _, id in ipairs(in_flight(partition)) do
  local key, at = call('HGET', row(id), 'k'), named[id]
  if at or stopped[key] then
    call('ZREM', front .. 'flight:' .. partition, id)
    changed = changed + 1
  end
  if at then
    stopped[key] = true
    call('HSET', row(id), 'ft', ARGV[at + 3], 'fr', ARGV[at + 4])
    if ARGV[at + 1] == 'retry' then wait_until(id, 'IN_FLIGHT', now + tonumber(ARGV[at + 2]))
    else park(id, 'IN_FLIGHT', ARGV[at + 1] == 'park') end
  elseif stopped[key] then
    call('HINCRBY', row(id), 'a', -1)
    give_back(id)
  end
end
if changed == 0 and #ARGV > 5 then return { 'STALE' } end
return { 'DONE', raise(partition), changed }
