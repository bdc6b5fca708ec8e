-- A script, because only the holder may free a key: a plain DEL could free a key that another process took after the lock expired, or
-- delete a completed key.
-- KEYS: key. ARGV: the caller's boot id, its instance. Returns 1 when the key was freed.
local value = redis.call('GET', KEYS[1])
local boot, instance
if value then
  boot, instance = string.match(value, '^v3|IN_PROGRESS|%x*|(%x*)|(.*)$')
end
if boot == ARGV[1] and instance == ARGV[2] then
  return redis.call('DEL', KEYS[1])
end
return 0
