-- A script, as for the other reads of orders, so that its latency is measured in the same way.
-- ARGV: the list's name, the lower bound (`-` or `(id`), limit. Returns ids, oldest first.
return call('ZRANGEBYLEX', prefix .. ARGV[1], ARGV[2], '+', 'LIMIT', 0, ARGV[3])
