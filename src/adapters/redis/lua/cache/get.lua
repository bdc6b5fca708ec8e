-- A script, because entry and epoch must be read at one moment: with two commands, an epoch raised in between would make an entry from
-- before an outage look current.
-- KEYS: entry, epoch. Returns the epoch (nil when it is gone) and the order's text (nil when the entry is absent or of another epoch).
local epoch = redis.call('GET', KEYS[2])
local entry = redis.call('HMGET', KEYS[1], 'e', 'o')
if epoch and entry[1] == epoch then
  return { epoch, entry[2] }
end
return { epoch, false }
