-- Why a script: a restart under the same name may have written its own sign of life already, and that one must stay.
-- KEYS: sign of life. ARGV: the boot that leaves.
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0
