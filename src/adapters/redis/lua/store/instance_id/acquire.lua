-- A script, because an instance id is taken over from the very holder that the caller judged dead, not from a later one.
-- ARGV: instance, boot id, the boot id of the holder to replace or empty, pid, address, dead after in ms, installation to write if there is
-- none, partitions. Returns 1 if the caller holds the instance id; the holder's boot id, pid and address; how long the holder is silent in
-- ms, 1 if that is too long; the installation and its partitions.
local holder = prefix .. 'holder:' .. ARGV[1]
call('HSETNX', prefix .. 'meta', 'installation', ARGV[7])
call('HSETNX', prefix .. 'meta', 'partitions', ARGV[8])
local installation, partitions = unpack(call('HMGET', prefix .. 'meta', 'installation', 'partitions'))
local boot, pid, address, seen, limit = unpack(call('HMGET', holder, 'boot', 'pid', 'address', 'seen', 'dead_after'))
local silent = seen and now - tonumber(seen) or 0
if ARGV[2] ~= '' and (boot or '') == ARGV[3] then
  call('HSET', holder, 'boot', ARGV[2], 'pid', ARGV[4], 'address', ARGV[5], 'seen', integer(now), 'dead_after', ARGV[6])
  return { 1, ARGV[2], ARGV[4], ARGV[5], '0', 0, installation, partitions }
end
local dead = seen and silent >= tonumber(limit)
return { 0, boot or '', pid or '', address or '', integer(silent), dead and 1 or 0, installation, partitions }
