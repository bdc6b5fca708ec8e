-- Why a script: who lives is judged at one moment, by the server's clock. A holder's own sign of life is renewed on the way.
-- ARGV: instance, dead after in ms, the caller's boot where it holds that name (else empty). Answers whether the name is the caller's
-- still, then of each member: name, 1 while it lives, when it was seen.
local instance, dead_after, boot = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local holder = front .. 'holder:' .. instance
local ours = 1
if boot ~= '' then
  if call('HGET', holder, 'boot') == boot then call('HSET', holder, 'seen', whole(now), 'dead_after', whole(dead_after)) else ours = 0 end
end
if ours == 1 then call('HSET', front .. 'members', instance, whole(now) .. ' ' .. whole(dead_after)) end
local told = { ours }
local members = call('HGETALL', front .. 'members')
for at = 1, #members, 2 do
  local seen, limit = string.match(members[at + 1], '^(%S+) (%S+)$')
  seen, limit = tonumber(seen), tonumber(limit)
  if seen + limit * 1000 < now then
    call('HDEL', front .. 'members', members[at])
  else
    told[#told + 1] = { members[at], seen + dead_after > now and 1 or 0, whole(seen) }
  end
end
return told
