-- Why a script: only a key that is still ours may be given back; a plain DEL could free one that somebody else took after our lock ran
-- out, or forget what was made.
-- KEYS: key. ARGV: the caller's boot, its instance. Answers 1 when the key is free now.
local value = redis.call('GET', KEYS[1])
local boot, instance
if value then
  boot, instance = string.match(value, '^v3|IN_PROGRESS|%x*|(%x*)|(.*)$')
end
if boot == ARGV[1] and instance == ARGV[2] then
  return redis.call('DEL', KEYS[1])
end
return 0
