-- Why a script: of two callers exactly one may get the key, and a key whose holder is dead must be taken in the same step that found the
-- holder dead. A holder is dead when its sign of life is gone or carries another boot. The caller's own sign is renewed on the way, so
-- that a key in use always has one.
-- KEYS: key, the caller's sign of life. ARGV: the value to write, lock in ms, front of every sign's name, the caller's boot, life of a
-- sign in ms. Answers what stands there (nil: the key is the caller's now).
redis.call('SET', KEYS[2], ARGV[4], 'PX', ARGV[5])
local value = redis.call('GET', KEYS[1])
if value then
  local boot, instance = string.match(value, '^v3|IN_PROGRESS|%x*|(%x*)|(.*)$')
  if not boot then
    -- A running mark of an earlier service that will never expire would block its key for good.
    local running = string.find(value, '^IN_FLIGHT:') or string.find(value, '^V2|IN_PROGRESS|')
    if running and redis.call('PTTL', KEYS[1]) < 0 then
      redis.call('PEXPIRE', KEYS[1], ARGV[2])
    end
    return value
  end
  -- In a cluster the sign is in the key's own slot: all of these names share one hash tag.
  if redis.call('GET', ARGV[3] .. instance) == boot then
    return value
  end
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return false
