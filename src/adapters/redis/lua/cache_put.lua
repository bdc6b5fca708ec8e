-- Why a script: a newer version must never give way to an older one, so comparing and writing are one step.
-- Whoever does not know the present epoch (or not for long enough) may hold an order from before it: then only the version is kept. That
-- hides whatever stood there, forbids older versions, and shows nothing. Versions are compared across epochs: they only ever grow.
-- KEYS: entry, epoch. ARGV: version, text, the epoch the writer knows, time to live in ms. Answers the epoch (nil when it is gone).
local epoch = redis.call('GET', KEYS[2])
local known = redis.pcall('HGET', KEYS[1], 'v')
if type(known) == 'table' then
  -- Something that is no entry stands under an entry's name.
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
