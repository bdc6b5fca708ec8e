-- Why a script: a caller whose lock ran out must not end the work of whoever has the key now; that one will find the durable mark and
-- complete the key itself. A completed value is replaced: the caller has read what the store says, and an older value may name an order
-- that the store does not have.
-- KEYS: key. ARGV: the caller's boot, its instance, the value to write, how long to keep it in ms. Answers 1 when it was written.
local value = redis.call('GET', KEYS[1])
if value then
  local boot, instance = string.match(value, '^v3|IN_PROGRESS|%x*|(%x*)|(.*)$')
  local legacy = string.find(value, '^IN_FLIGHT:') or string.find(value, '^V2|IN_PROGRESS|')
  if legacy or (boot and (boot ~= ARGV[1] or instance ~= ARGV[2])) then
    return 0
  end
end
redis.call('SET', KEYS[1], ARGV[3], 'PX', ARGV[4])
return 1
