-- Why a script: a mark's age is measured by the server's clock, in the step that looks.
-- ARGV: `find`, field, keep in ms; answers the value. Or `sweep`, limit, keep; answers how many were forgotten.
local keep = tonumber(ARGV[3])
if ARGV[1] == 'find' then
  local written = call('ZSCORE', front .. 'marks:age', ARGV[2])
  if not written or now - tonumber(written) > keep then return false end
  return call('HGET', front .. 'marks', ARGV[2])
end
local old = call('ZRANGEBYSCORE', front .. 'marks:age', '-inf', '(' .. whole(now - keep), 'LIMIT', 0, ARGV[2])
for _, field in ipairs(old) do
  call('HDEL', front .. 'marks', field)
  call('ZREM', front .. 'marks:age', field)
end
return #old
