-- A script, because leases and depths must be of one moment.
-- ARGV: the number of partitions. Returns of each: owner, epoch, counter, open token, expiry, rows that are not SENT.
local views = {}
for partition = 0, tonumber(ARGV[1]) - 1 do
  local lease = read_lease(partition)
  local depth = call('ZCARD', prefix .. 'live:' .. partition)
  views[partition + 1] = { lease.owner or '', lease.epoch, lease.counter, lease.token or '', lease.owner and lease.expires or '', depth }
end
return views
