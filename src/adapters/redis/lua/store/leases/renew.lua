-- A script, because a lease is compared and renewed in one step.
-- ARGV: owner, time to live in ms, then partition and epoch of each lease. Returns the partitions that the owner still holds.
local renewed = {}
for index = 3, #ARGV, 2 do
  local lease = read_lease(ARGV[index])
  if lease.owner == ARGV[1] and lease.epoch == ARGV[index + 1] and tonumber(lease.expires or '0') > now then
    call('HSET', lease.name, 'expires', integer(now + tonumber(ARGV[2])))
    renewed[#renewed + 1] = ARGV[index]
  end
end
return renewed
