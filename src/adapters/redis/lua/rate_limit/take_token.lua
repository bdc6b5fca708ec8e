-- A script, because refilling and taking are one step by the server's clock: two instances that read the same bucket must not both take
-- its last token.
-- KEYS: bucket. ARGV: size, tokens per ms, time to live in ms. Returns 1 (allowed) or 0, and the remaining tokens as text, because Redis
-- truncates numbers to integers.
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + tonumber(time[2]) / 1000
local size = tonumber(ARGV[1])
local bucket = redis.call('HMGET', KEYS[1], 't', 'a')
local tokens = size
if bucket[1] and bucket[2] then
  -- After a failover the new server's clock may be behind: then this call refills nothing, and later calls count from the new clock.
  local elapsed = math.max(0, now - tonumber(bucket[2]))
  tokens = math.min(size, tonumber(bucket[1]) + elapsed * tonumber(ARGV[2]))
end
local allowed = 0
-- A rounding error must not cost a whole token.
if tokens + 1e-9 >= 1 then
  allowed = 1
  tokens = math.max(0, tokens - 1)
end
redis.call('HSET', KEYS[1], 't', string.format('%.17g', tokens), 'a', string.format('%.3f', now))
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return { allowed, string.format('%.17g', tokens) }
