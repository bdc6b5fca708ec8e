-- A script, because every read of the store is one. ARGV: id. Returns the documents, newest first.
return call('LRANGE', prefix .. 'webhook:deliveries:' .. ARGV[1], 0, -1)
