-- A script, because a restarted process of the same instance may have written its own heartbeat already, and that one must stay.
-- KEYS: heartbeat key. ARGV: the boot id of the process that leaves. Returns 1 when the heartbeat was deleted.
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0
