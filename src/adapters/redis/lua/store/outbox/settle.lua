-- A script, because all rows of an open batch become SENT in one step under its token. The counter is not compared.
-- ARGV: partition, owner, epoch, token, then for each row with a known position or fallback: id, `1` if it went by fallback, and the
-- partition, offset and topic of its record, or three empty texts.
local partition, owner, epoch, token = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local lease = read_lease(partition)
if lease.owner ~= owner or lease.epoch ~= epoch or lease.token ~= token then return repeated_close(lease, owner, epoch, token) end
local reports = {}
for at = 5, #ARGV, 5 do reports[ARGV[at]] = at end
local ids = in_flight_ids(partition, token)
for _, id in ipairs(ids) do
  local at = reports[id]
  if at then call('HSET', row_key(id), 'fb', ARGV[at + 1], 'tp', ARGV[at + 2], 'to', ARGV[at + 3], 'tt', ARGV[at + 4]) end
  archive(id, partition)
end
refresh_changed_keys()
return { 'DONE', close_batch(lease, partition), #ids }
