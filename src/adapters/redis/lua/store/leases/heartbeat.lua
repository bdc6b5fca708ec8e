-- A script, because the liveness of all members is judged at one moment, by the server's clock. It also renews the heartbeat of the
-- instance name that the caller holds.
-- ARGV: instance, dead after in ms, the caller's boot id if it holds that name (else empty), its pid. Returns 1 if the caller still holds the name,
-- then how many live members come before the instance in the order of names, and how many are alive.
local instance, dead_after, boot = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local holder = prefix .. 'holder:' .. instance
local held = 1
if boot ~= '' then
  local known = call('HGET', holder, 'boot')
  -- Without a holder no other process has the name: a replica that had not received it was promoted. The caller takes it again.
  if not known then call('HSET', holder, 'boot', boot, 'pid', ARGV[4]) end
  if not known or known == boot then
    call('HSET', holder, 'seen', integer(now), 'dead_after', integer(dead_after))
  else
    held = 0
  end
end
if held == 1 then call('HSET', prefix .. 'members', instance, integer(now) .. ' ' .. integer(dead_after)) end
local rank, live = 0, 0
local members = call('HGETALL', prefix .. 'members')
for at = 1, #members, 2 do
  local seen, limit = string.match(members[at + 1], '^(%S+) (%S+)$')
  seen, limit = tonumber(seen), tonumber(limit)
  if seen + limit * MEMBER_RETENTION_FACTOR < now then
    call('HDEL', prefix .. 'members', members[at])
  elseif seen + limit > now then
    live = live + 1
    if members[at] < instance then rank = rank + 1 end
  end
end
return { held, rank, live }
