-- A script, because only the holder may renew the instance id. It registers no member: a process that relays nothing gets no partitions.
-- ARGV: instance, dead after in ms, boot id, pid, installation, partitions. Returns 1 if the caller still holds the instance id, and the
-- installation of this Redis.
local held = renew_instance_id(ARGV[1], ARGV[3], ARGV[4], tonumber(ARGV[2]), ARGV[5], ARGV[6])
return { held and 1 or 0, call('HGET', prefix .. 'meta', 'installation') or '' }
