-- A script, because all rows of an open batch become SENT in one step under its token. The counter is not compared.
-- ARGV: partition, owner, epoch, token, then for each row with a known position or fallback: id, `1` if it went by fallback, and the
-- partition, offset and topic of its record, or three empty texts.
local partition, owner, epoch, token = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local lease = read_lease(partition)
if lease.owner ~= owner or lease.epoch ~= epoch or lease.token ~= token then return repeated_close(lease, owner, epoch, token) end
local reports = {}
for index = 5, #ARGV, 5 do reports[ARGV[index]] = index end
local ids = in_flight_ids(partition, token)
for _, id in ipairs(ids) do
  local index = reports[id]
  if index then call('HSET', row_key(id), 'fb', ARGV[index + 1], 'tp', ARGV[index + 2], 'to', ARGV[index + 3], 'tt', ARGV[index + 4]) end
  archive(id, partition)
end
refresh_changed_keys()
return { 'DONE', close_batch(lease, partition), #ids }
