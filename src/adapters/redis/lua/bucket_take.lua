-- Why a script: refilling and taking are one step, by the server's clock; two instances that read the same bucket must not both take its
-- last token.
-- KEYS: bucket. ARGV: size, tokens per ms, life in ms. Answers 1 or 0 (allowed), and what is left as text: Redis cuts numbers to integers.
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + tonumber(time[2]) / 1000
local size = tonumber(ARGV[1])
local bucket = redis.call('HMGET', KEYS[1], 't', 'a')
local held = size
if bucket[1] and bucket[2] then
  -- After a failover the new server's clock may be behind: then nothing is refilled this once, and time goes on from its clock.
  local passed = math.max(0, now - tonumber(bucket[2]))
  held = math.min(size, tonumber(bucket[1]) + passed * tonumber(ARGV[2]))
end
local allowed = 0
-- A hair of rounding must not cost a whole token.
if held + 1e-9 >= 1 then
  allowed = 1
  held = math.max(0, held - 1)
end
redis.call('HSET', KEYS[1], 't', string.format('%.17g', held), 'a', string.format('%.3f', now))
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return { allowed, string.format('%.17g', held) }
