-- Why a script: entry and epoch must be seen at one moment. Asked for one after the other, an epoch raised in between would make an
-- entry from before an outage look trusted.
-- KEYS: entry, epoch. Answers the epoch (nil when it is gone) and the order's text (nil when there is none that can be trusted).
local epoch = redis.call('GET', KEYS[2])
local entry = redis.call('HMGET', KEYS[1], 'e', 'o')
if epoch and entry[1] == epoch then
  return { epoch, entry[2] }
end
return { epoch, false }
