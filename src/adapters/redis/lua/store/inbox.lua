-- Why a script: a mark and its effects are one step; of two consumers of one message one is first.
-- ARGV: group, then for each message: event, place, number of effects, and of each effect: order, region, millis, counter. Answers 1 for
-- each that is new, 0 for each that was seen before.
local group, told, at = ARGV[1], {}, 2
call('SADD', front .. 'groups', group)

-- Two consumers may race with two winners: the later stamp stays, whatever the order, and the incoming one wins a tie.
local function remember(order, region, millis, counter)
  local known = call('HGET', front .. 'remotes', order)
  if known then
    local m, c, r = string.match(known, '^(%S+) (%S+) (.*)$')
    local older = tonumber(m) < tonumber(millis)
    local same = tonumber(m) == tonumber(millis)
    older = older or (same and tonumber(c) < tonumber(counter))
    same = same and tonumber(c) == tonumber(counter)
    if not (older or (same and r <= region)) then return end
  end
  call('HSET', front .. 'remotes', order, millis .. ' ' .. counter .. ' ' .. region)
end

while at <= #ARGV do
  local event, place, effects = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2])
  at = at + 3
  local new = call('HSETNX', front .. 'processed:' .. group, event, place)
  told[#told + 1] = new
  if new == 1 then call('ZADD', front .. 'processed:age:' .. group, now, event) end
  for _ = 1, effects do
    if new == 1 then remember(ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]) end
    at = at + 4
  end
end
return told
