-- A script, because the generation must be read, or begun, at the moment of the lookup: a list that is read from the store afterwards then
-- belongs to it. A generation is the server's time in microseconds: a later one is always another one.
-- KEYS: the scope's lists, epoch. ARGV: field, time to live of the scope's lists in ms. Returns the epoch (nil when it is gone), the
-- generation, and the list's text (nil when it is absent or of another epoch).
local epoch = redis.call('GET', KEYS[2])
local generation = redis.pcall('HGET', KEYS[1], 'g')
if type(generation) ~= 'string' then
  local time = redis.call('TIME')
  generation = string.format('%.0f', tonumber(time[1]) * 1000000 + tonumber(time[2]))
  redis.call('DEL', KEYS[1])
  redis.call('HSET', KEYS[1], 'g', generation)
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return { epoch, generation, false }
end
local entry = redis.call('HGET', KEYS[1], ARGV[1])
if epoch and entry and string.sub(entry, 1, #epoch + 1) == epoch .. '\n' then
  return { epoch, generation, string.sub(entry, #epoch + 2) }
end
return { epoch, generation, false }
