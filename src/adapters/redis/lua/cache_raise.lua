-- Why a script: an epoch must be one that no entry carries. Counting alone would begin anew when the key was evicted by itself or came
-- back from an old snapshot, and meet old entries again; so it is the server's time in microseconds, and above the last one in any case.
-- KEYS: epoch. Answers the new epoch.
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local last = tonumber(redis.call('GET', KEYS[1]) or '0') or 0
local epoch = string.format('%.0f', math.max(now, last + 1))
redis.call('SET', KEYS[1], epoch)
return epoch
