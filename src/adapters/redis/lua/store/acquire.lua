-- Why a script: judging the former owner and taking its place are one step.
-- ARGV: partition, owner, `vacant`, `worker` or `uncertain`, the broker's watermark or empty, time to live in ms.
local partition, taker, because = ARGV[1], ARGV[2], ARGV[3]
local lease = lease_of(partition)
local former = lease.owner or nil
local heart = 'unheard'
local seen, limit = string.match(former and call('HGET', front .. 'members', former) or '', '^(%S+) (%S+)$')
if seen then heart = tonumber(seen) + tonumber(limit) > now and 'beats' or 'stopped' end
local remaining = tonumber(lease.expires or '0') - now
if former and former ~= taker and remaining > 0 and heart ~= 'stopped' then return { 'HELD', former, whole(remaining) } end

local owner_died = false
if former == taker then owner_died = because ~= 'uncertain' elseif former then owner_died = heart ~= 'beats' end
local claimer_died = false
if lease.token then
  -- The first taker finds out; later ones only know what it wrote down.
  if lease.claimed == lease.epoch then claimer_died = owner_died else claimer_died = lease.died == '1' end
end
if because == 'vacant' and owner_died then
  -- A death without them in hand clears the rows that were suspected: what killed was something else.
  for _, id in ipairs(call('ZRANGE', front .. 'died:' .. partition, 0, -1)) do
    if not call('ZSCORE', front .. 'flight:' .. partition, id) then
      call('HSET', row(id), 'd', 0, 't', 0)
      call('ZREM', front .. 'died:' .. partition, id)
    end
  end
end
local counter = whole(math.max(tonumber(lease.counter), tonumber(ARGV[4]) or 0) + 1)
local epoch = whole(tonumber(lease.epoch) + 1)
call('HSET', lease.name, 'owner', taker, 'epoch', epoch, 'counter', counter, 'expires', whole(now + tonumber(ARGV[5])))
if lease.token then call('HSET', lease.name, 'died', claimer_died and 1 or 0) end
return { 'TAKEN', epoch, counter, lease.token or '', lease.lane or '', claimer_died and 1 or 0 }
