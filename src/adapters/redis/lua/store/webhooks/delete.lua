-- A script, because a webhook, its deliveries and the retry routes of its group go in one step. ARGV: id, group. Returns 1 if it existed. The
-- retry routes may be many: their memory is released in the background.
call('UNLINK', prefix .. 'detours:' .. ARGV[2])
call('DEL', prefix .. 'webhook:deliveries:' .. ARGV[1])
return call('HDEL', prefix .. 'webhooks', ARGV[1])
