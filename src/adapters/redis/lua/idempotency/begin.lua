-- A script, because of two callers exactly one may take the key, and the key of a dead holder must be taken in the step that found the
-- holder dead. A holder is dead when its heartbeat key is gone or carries another boot id. The script renews the caller's own heartbeat
-- first, so that a key in use always has one.
-- KEYS: key, the caller's heartbeat key. ARGV: the value to write, lock in ms, prefix of all heartbeat keys, the caller's boot id, time to
-- live of a heartbeat in ms. Returns the value of a key in use or completed; nil means that the caller has taken the key.
redis.call('SET', KEYS[2], ARGV[4], 'PX', ARGV[5])
local value = redis.call('GET', KEYS[1])
if value then
  local boot, instance = string.match(value, '^v3|IN_PROGRESS|%x*|(%x*)|(.*)$')
  if not boot then
    -- An in-progress value of an earlier release without an expiry would block its key for ever.
    local running = string.find(value, '^IN_FLIGHT:') or string.find(value, '^V2|IN_PROGRESS|')
    if running and redis.call('PTTL', KEYS[1]) < 0 then
      redis.call('PEXPIRE', KEYS[1], ARGV[2])
    end
    return value
  end
  -- In a cluster the heartbeat key is in the key's own slot, because all of these names share one hash tag.
  if redis.call('GET', ARGV[3] .. instance) == boot then
    return value
  end
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return false
