-- A script, because no entry may carry the new epoch. A plain counter would start again when the key was evicted or restored from an old
-- snapshot, and would reach the epochs of old entries again. So the epoch is the server's time in microseconds, and always above the last.
-- KEYS: epoch. Returns the new epoch.
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local last = tonumber(redis.call('GET', KEYS[1]) or '0') or 0
local epoch = string.format('%.0f', math.max(now, last + 1))
redis.call('SET', KEYS[1], epoch)
return epoch
