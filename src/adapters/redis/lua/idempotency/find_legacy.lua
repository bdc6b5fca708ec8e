-- A script, because a key in use that an earlier service left without an expiry must not block its name for ever: it gets one in the step
-- that reads it.
-- KEYS: the earlier service's key. ARGV: lock in ms. Returns its value; nil when it is absent.
local value = redis.call('GET', KEYS[1])
local running = value and (string.find(value, '^IN_FLIGHT') or string.find(value, '^IN_PROGRESS') or string.find(value, '^V2|IN_PROGRESS'))
if running and redis.call('PTTL', KEYS[1]) < 0 then
  redis.call('PEXPIRE', KEYS[1], ARGV[1])
end
return value
