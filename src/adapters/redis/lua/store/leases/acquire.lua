-- A script, because judging the former owner and replacing it are one step.
-- ARGV: partition, new owner, `unowned`, `worker_died` or `outcome_unknown`, the broker's watermark or empty, time to live in ms.
local partition, new_owner, reason = ARGV[1], ARGV[2], ARGV[3]
local lease = read_lease(partition)
local former = lease.owner or nil
local liveness = 'unknown'
local seen, limit = string.match(former and call('HGET', prefix .. 'members', former) or '', '^(%S+) (%S+)$')
if seen then liveness = tonumber(seen) + tonumber(limit) > now and 'alive' or 'dead' end
local remaining = tonumber(lease.expires or '0') - now
if former and former ~= new_owner and remaining > 0 and liveness ~= 'dead' then return { 'HELD', former, integer(remaining) } end

local owner_died = false
if former == new_owner then owner_died = reason ~= 'outcome_unknown' elseif former then owner_died = liveness ~= 'alive' end
local claimer_died = false
if lease.token then
  -- The first owner after the claim decides and stores whether the claimer died; later owners read what it stored.
  if lease.claimed == lease.epoch then claimer_died = owner_died else claimer_died = lease.died == '1' end
end
if reason == 'unowned' and owner_died then
  -- The owner died without these rows in flight, so they did not cause its death: their deaths are cleared.
  for _, id in ipairs(call('ZRANGE', prefix .. 'died:' .. partition, 0, -1)) do
    if not call('ZSCORE', prefix .. 'flight:' .. partition, id) then
      call('HSET', row_key(id), 'd', 0, 't', 0)
      call('ZREM', prefix .. 'died:' .. partition, id)
    end
  end
end
local counter = integer(math.max(tonumber(lease.counter), tonumber(ARGV[4]) or 0) + 1)
local epoch = integer(tonumber(lease.epoch) + 1)
call('HSET', lease.name, 'owner', new_owner, 'epoch', epoch, 'counter', counter, 'expires', integer(now + tonumber(ARGV[5])))
if lease.token then call('HSET', lease.name, 'died', claimer_died and 1 or 0) end
return { 'ACQUIRED', epoch, counter, lease.token or '', lease.lane or '', claimer_died and 1 or 0 }
