-- A script, because deliveries of a webhook that is being deleted are not written. ARGV: number that is kept, then id and document of each,
-- oldest first. Returns 1.
local kept = tonumber(ARGV[1])
for index = 2, #ARGV, 2 do
  if call('HEXISTS', prefix .. 'webhooks', ARGV[index]) == 1 then
    local list = prefix .. 'webhook:deliveries:' .. ARGV[index]
    call('LPUSH', list, ARGV[index + 1])
    call('LTRIM', list, 0, kept - 1)
  end
end
return 1
