-- A script, because an open batch is closed with its outcome in one step under the counter.
-- ARGV: partition, owner, epoch, counter, token, `published`, `claimer_died` or `not_sent`, then the poison rules, three values each: `topic`
-- or `type`, its name, `block-key` or `skip-row`. Returns the rows that were parked, too.
local partition, owner, epoch, counter, token, outcome = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local lease = read_lease(partition)
local open = lease.owner == owner and lease.epoch == epoch and lease.token == token
if not open or lease.counter ~= counter then return repeated_close(lease, owner, epoch, token) end

local rules, parked = { topic = {}, type = {} }, {}
for index = 7, #ARGV, 3 do rules[ARGV[index]][ARGV[index + 1]] = ARGV[index + 2] end

-- A topic's rule comes before that of an event type. The topic is the first value of the row's metadata.
local function blocks_key(metadata, kind)
  local topic = cjson.decode(metadata)[1]
  return (rules.topic[topic] or rules.type[kind] or 'block-key') == 'block-key'
end

local function park(id, trial_deaths)
  local event, key, kind, attempts, extra, metadata = unpack(call('HMGET', row_key(id), 'ev', 'k', 'ty', 'a', 'xm', 'e'))
  local reason = string.format(POISON_REASON, trial_deaths)
  call('HSET', row_key(id), 'ft', 'SYSTEM', 'fr', reason)
  set_parked(id, 'IN_FLIGHT', blocks_key(metadata, kind))
  parked[#parked + 1] = { id, event, key, kind, attempts, reason, extra or '' }
end

-- A row with SUSPECT_DEATHS deaths is claimed only by trials, which are TRIAL_INTERVAL_MS apart; TRIAL_DEATHS_MAX deaths in trials park it.
local function count_death(id)
  local deaths = call('HINCRBY', row_key(id), 'd', 1)
  local trial_deaths = call('HINCRBY', row_key(id), 't', lease.trial == '1' and 1 or 0)
  call('ZADD', prefix .. 'died:' .. partition, id, id)
  if lease.trial == '1' and trial_deaths >= TRIAL_DEATHS_MAX then
    park(id, trial_deaths)
  elseif deaths >= SUSPECT_DEATHS then
    set_failed(id, 'IN_FLIGHT', now + TRIAL_INTERVAL_MS)
  else
    restore_state(id)
  end
end

local ids = in_flight_ids(partition, token)
for _, id in ipairs(ids) do
  if outcome == 'published' then
    archive(id, partition)
  else
    call('ZREM', prefix .. 'flight:' .. partition, id)
    if outcome == 'claimer_died' then
      count_death(id)
    else
      give_attempt_back(id)
      restore_state(id)
    end
  end
end
refresh_changed_keys()
return { 'DONE', close_batch(lease, partition), #ids, parked }
