-- A script, because comparing the generation and writing are one step: a list from before a change must not be cached after it.
-- KEYS: the scope's lists, epoch. ARGV: generation of the reader's lookup, field, text, the epoch that the writer knows, limit of fields.
-- Returns the epoch (nil when it is gone).
local epoch = redis.call('GET', KEYS[2])
local generation = redis.pcall('HGET', KEYS[1], 'g')
if epoch == ARGV[4] and generation == ARGV[1] and redis.call('HLEN', KEYS[1]) <= tonumber(ARGV[5]) then
  redis.call('HSET', KEYS[1], ARGV[2], epoch .. '\n' .. ARGV[3])
end
return epoch
