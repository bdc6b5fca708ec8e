-- A script, because all changes of detours are one step.
-- ARGV: group, then for each change: key, stage to enter or empty to leave.
local detours = prefix .. 'detours:' .. ARGV[1]
for at = 2, #ARGV, 2 do
  local key, stage = ARGV[at], ARGV[at + 1]
  local known, outstanding = string.match(call('HGET', detours, key) or '', '^(%S+) (%S+)$')
  if stage ~= '' then
    call('HSET', detours, key, stage .. ' ' .. integer(tonumber(outstanding or '0') + 1))
  elseif known then
    local left = tonumber(outstanding) - 1
    if left > 0 then call('HSET', detours, key, known .. ' ' .. integer(left)) else call('HDEL', detours, key) end
  end
end
return 1
