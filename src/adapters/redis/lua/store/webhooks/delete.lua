-- A script, because a webhook and its deliveries go in one step. ARGV: id. Returns 1 if it existed.
call('DEL', prefix .. 'webhook:deliveries:' .. ARGV[1])
return call('HDEL', prefix .. 'webhooks', ARGV[1])
