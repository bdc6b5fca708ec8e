-- Why a script: an open batch is closed by what was found out about it, in one step under the counter.
-- ARGV: partition, owner, epoch, counter, token, `published`, `died` or `returned`.
local partition, owner, epoch, counter, token, verdict = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local lease = lease_of(partition)
local open = lease.owner == owner and lease.epoch == epoch and lease.token == token
if not open or lease.counter ~= counter then return repeated(lease, owner, epoch, token) end

-- Three deaths make a suspect, which is tried 10 s apart; two deaths in trials convict.
local function died(id)
  local deaths = call('HINCRBY', row(id), 'd', 1)
  local trials = call('HINCRBY', row(id), 't', lease.trial == '1' and 1 or 0)
  call('ZADD', front .. 'died:' .. partition, id, id)
  if lease.trial == '1' and trials >= 2 then
    local reason = 'poison: its claimer died in ' .. whole(trials) .. ' trials in which it was the only work'
    call('HSET', row(id), 'ft', 'SYSTEM', 'fr', reason)
    park(id, 'IN_FLIGHT', true)
  elseif deaths >= 3 then
    wait_until(id, 'IN_FLIGHT', now + 10000)
  else
    give_back(id)
  end
end

local ids = in_flight(partition)
for _, id in ipairs(ids) do
  if verdict == 'published' then
    archive(id, partition)
  else
    call('ZREM', front .. 'flight:' .. partition, id)
    if verdict == 'died' then
      died(id)
    else
      call('HINCRBY', row(id), 'a', -1)
      give_back(id)
    end
  end
end
return { 'DONE', close(lease, partition), #ids }
