-- A script, because a lease is compared and released in one step.
-- ARGV: owner, partition, epoch. Returns `DONE`, `IN_FLIGHT` or `NOT_HELD`.
local lease = read_lease(ARGV[2])
if lease.owner ~= ARGV[1] or lease.epoch ~= ARGV[3] then return 'NOT_HELD' end
if lease.token then return 'IN_FLIGHT' end
call('HDEL', lease.name, 'owner')
-- `expires` becomes the time of the release, so that a survey shows since when the partition is free.
call('HSET', lease.name, 'expires', integer(now))
return 'DONE'
