-- Why a script: a name is taken from the one that was judged, and from nobody who came in between.
-- ARGV: instance, boot, the former boot or empty, pid, address, dead after in ms, installation to use if there is none, partitions. Answers
-- whether the name is ours, who holds it (boot, pid, address), how long it is silent in ms and whether that is too long, the installation
-- and its partitions.
local holder = front .. 'holder:' .. ARGV[1]
call('HSETNX', front .. 'meta', 'installation', ARGV[7])
call('HSETNX', front .. 'meta', 'partitions', ARGV[8])
local installation, partitions = unpack(call('HMGET', front .. 'meta', 'installation', 'partitions'))
local boot, pid, address, seen, limit = unpack(call('HMGET', holder, 'boot', 'pid', 'address', 'seen', 'dead_after'))
local silent = seen and now - tonumber(seen) or 0
if ARGV[2] ~= '' and (boot or '') == ARGV[3] then
  call('HSET', holder, 'boot', ARGV[2], 'pid', ARGV[4], 'address', ARGV[5], 'seen', whole(now), 'dead_after', ARGV[6])
  return { 1, ARGV[2], ARGV[4], ARGV[5], '0', 0, installation, partitions }
end
local dead = seen and silent >= tonumber(limit)
return { 0, boot or '', pid or '', address or '', whole(silent), dead and 1 or 0, installation, partitions }
