-- A script, because an event is recorded and its effects are applied in one step, and of two consumers of one event only one is first.
-- ARGV: group, then for each event: event, position, number of effects, and of each effect: order, region, millis, counter. Returns for
-- each event 1 if it is new, 0 if the group has processed it before.
local group, result, index = ARGV[1], {}, 2
call('SADD', prefix .. 'groups', group)

-- Two consumers may apply stamps in any order: the later stamp wins, and the greater region wins a tie.
local function apply_stamp(order, region, millis, counter)
  local known = call('HGET', prefix .. 'remotes', order)
  if known then
    local known_millis, known_counter, known_region = string.match(known, '^(%S+) (%S+) (.*)$')
    local older = tonumber(known_millis) < tonumber(millis)
    local same = tonumber(known_millis) == tonumber(millis)
    older = older or (same and tonumber(known_counter) < tonumber(counter))
    same = same and tonumber(known_counter) == tonumber(counter)
    if not (older or (same and not before(region, known_region))) then return end
  end
  call('HSET', prefix .. 'remotes', order, millis .. ' ' .. counter .. ' ' .. region)
end

while index <= #ARGV do
  local event, position, effects = ARGV[index], ARGV[index + 1], tonumber(ARGV[index + 2])
  index = index + 3
  local new = call('HSETNX', prefix .. 'processed:' .. group, event, position)
  result[#result + 1] = new
  if new == 1 then call('ZADD', prefix .. 'processed:age:' .. group, now, event) end
  for _ = 1, effects do
    if new == 1 then apply_stamp(ARGV[index], ARGV[index + 1], ARGV[index + 2], ARGV[index + 3]) end
    index = index + 4
  end
end
return result
