-- A script, because rows leave an open batch under its token in one step, together with the later rows of their keys. The new counter
-- becomes the token of the rest.
-- ARGV: partition, owner, epoch, counter, token, then for each row: id, `retry`, `park_key` or `park_row`, delay in ms, attempts, failure
-- type, reason. Later rows of an excluded key return to PENDING with their attempt given back.
local partition, owner, epoch, counter, token = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local lease = read_lease(partition)
if lease.owner ~= owner or lease.epoch ~= epoch or lease.counter ~= counter or lease.token ~= token then return { 'STALE' } end
local exclusions = {}
for index = 6, #ARGV, 6 do exclusions[ARGV[index]] = index end
local stopped_keys, changed, rest = {}, 0, {}
for _, id in ipairs(in_flight_ids(partition, token)) do
  local key, index = call('HGET', row_key(id), 'k'), exclusions[id]
  if index or stopped_keys[key] then
    call('ZREM', prefix .. 'flight:' .. partition, id)
    changed = changed + 1
  end
  if index then
    stopped_keys[key] = true
    call('HSET', row_key(id), 'a', ARGV[index + 3], 'ft', ARGV[index + 4], 'fr', ARGV[index + 5])
    if ARGV[index + 1] == 'retry' then
      set_failed(id, 'IN_FLIGHT', now + tonumber(ARGV[index + 2]))
    else
      set_parked(id, 'IN_FLIGHT', ARGV[index + 1] == 'park_key')
    end
  elseif stopped_keys[key] then
    give_attempt_back(id)
    set_pending(id, 'IN_FLIGHT')
  else
    rest[#rest + 1] = id
  end
end
if changed == 0 and #ARGV > 5 then return { 'STALE' } end
local new_token = increment_counter(partition)
call('HSET', lease.name, 'token', new_token)
for _, id in ipairs(rest) do call('HSET', row_key(id), 'tok', new_token) end
refresh_changed_keys()
return { 'DONE', new_token, changed }
