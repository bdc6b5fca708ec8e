-- A script, because all changes of retry routes are one step. A retry route is its highest stage and the offset of its last message: a change that is
-- repeated, or that comes late, does not end it early.
-- ARGV: group, then for each change: key, offset, stage to enter or empty to leave.
local routes = prefix .. 'detours:' .. ARGV[1]
for index = 2, #ARGV, 3 do
  local key, offset, stage = ARGV[index], tonumber(ARGV[index + 1]), tonumber(ARGV[index + 2])
  local known, last = string.match(call('HGET', routes, key) or '', '^(%S+) (%S+)$')
  if stage then
    local highest, latest = math.max(stage, tonumber(known or '0')), math.max(offset, tonumber(last or '0'))
    call('HSET', routes, key, integer(highest) .. ' ' .. integer(latest))
  elseif known and tonumber(last) <= offset then
    call('HDEL', routes, key)
  end
end
return 1
