-- A script, because the liveness of all members is judged at one moment, by the server's clock. It also renews the heartbeat of the
-- instance id that the caller holds, and sets heartbeats that lie in the future to the present.
-- ARGV: instance, dead after in ms, the caller's boot id if it holds that instance id (else empty), its pid, its installation and its
-- number of partitions. Returns 1 if the caller still holds the instance id, then how many live members come before the instance in the
-- order of instance ids, how many are alive, and the installation of this Redis.
local instance, dead_after, boot, pid = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]
local held = 1
if boot ~= '' and not renew_instance_id(instance, boot, pid, dead_after, ARGV[5], ARGV[6]) then held = 0 end
if held == 1 then call('HSET', prefix .. 'members', instance, integer(now) .. ' ' .. integer(dead_after)) end
local rank, live = 0, 0
local members = call('HGETALL', prefix .. 'members')
for index = 1, #members, 2 do
  local seen, limit = string.match(members[index + 1], '^(%S+) (%S+)$')
  seen, limit = tonumber(seen), tonumber(limit)
  -- The server's clock was set back: a live instance renews its heartbeat, a dead one is dead after its limit from now on.
  if seen > now + HEARTBEAT_AHEAD_MAX_MS then
    seen = now
    call('HSET', prefix .. 'members', members[index], integer(seen) .. ' ' .. integer(limit))
  end
  if seen + limit * INSTANCE_RETENTION_FACTOR < now then
    call('HDEL', prefix .. 'members', members[index])
  elseif seen + limit > now then
    live = live + 1
    if before(members[index], instance) then rank = rank + 1 end
  end
end
return { held, rank, live, call('HGET', prefix .. 'meta', 'installation') or '' }
