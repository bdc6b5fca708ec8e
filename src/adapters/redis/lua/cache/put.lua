-- A script, because comparing and writing are one step: an older version must never replace a newer one.
-- A writer that does not know the current epoch, or has not known it for long enough, may carry an order from before it. Then the script
-- stores only the version: that hides the stored order and refuses older versions. Versions are compared across epochs, because they
-- only grow.
-- KEYS: entry, epoch. ARGV: version, text, the epoch that the writer knows, time to live in ms. Returns the epoch (nil when it is gone).
local epoch = redis.call('GET', KEYS[2])
local known = redis.pcall('HGET', KEYS[1], 'v')
if type(known) == 'table' then
  -- The entry's name holds a value of another type.
  redis.call('DEL', KEYS[1])
  known = false
end
known = tonumber(known or '-1') or -1
if known > tonumber(ARGV[1]) then
  return epoch
end
if epoch and epoch == ARGV[3] then
  redis.call('HSET', KEYS[1], 'e', epoch, 'v', ARGV[1], 'o', ARGV[2])
else
  redis.call('HDEL', KEYS[1], 'e', 'o')
  redis.call('HSET', KEYS[1], 'v', ARGV[1])
end
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return epoch
