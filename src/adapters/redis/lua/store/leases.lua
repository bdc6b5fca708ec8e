-- Why a script: a lease is compared and changed in one step.
-- ARGV: `renew`, owner, time to live in ms, then partition and epoch of each; answers the partitions that are the owner's still.
-- `release`, owner, partition, epoch; answers what became of it. `overview`, the number of partitions; answers each.
local owner = ARGV[2]
if ARGV[1] == 'renew' then
  local ours = {}
  for at = 4, #ARGV, 2 do
    local lease = lease_of(ARGV[at])
    if lease.owner == owner and lease.epoch == ARGV[at + 1] and tonumber(lease.expires or '0') > now then
      call('HSET', lease.name, 'expires', whole(now + tonumber(ARGV[3])))
      ours[#ours + 1] = ARGV[at]
    end
  end
  return ours
end
if ARGV[1] == 'release' then
  local lease = lease_of(ARGV[3])
  if lease.owner ~= owner or lease.epoch ~= ARGV[4] then return 'NOT_OURS' end
  if lease.token then return 'IN_FLIGHT' end
  call('HDEL', lease.name, 'owner', 'expires')
  return 'DONE'
end
local views = {}
for partition = 0, tonumber(ARGV[2]) - 1 do
  local lease = lease_of(partition)
  local depth = call('ZCARD', front .. 'live:' .. partition)
  views[partition + 1] = { lease.owner or '', lease.epoch, lease.counter, lease.token or '', lease.expires or '', depth }
end
return views
