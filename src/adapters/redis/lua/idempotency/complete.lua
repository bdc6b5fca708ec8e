-- A script, because a caller whose lock expired must not complete a key that another process holds now; that process finds the durable
-- record and completes the key itself. The script replaces a completed value: the caller has read the durable record, and an older value may
-- name an order that the store does not have.
-- KEYS: key. ARGV: the caller's boot id, its instance, the value to write, its time to live in ms. Returns 1 when it was written.
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
