-- A script, because every read of the store is one. Returns the documents of all webhooks.
return call('HVALS', prefix .. 'webhooks')
