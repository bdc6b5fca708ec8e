-- Why a script: an open batch is SENT as a whole, under its token; the counter is not compared.
-- ARGV: partition, owner, epoch, token, then for each row of which more is known: id, `1` where it went by fallback, and its place:
-- partition, offset and topic, or empty.
local partition, owner, epoch, token = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local lease = lease_of(partition)
if lease.owner ~= owner or lease.epoch ~= epoch or lease.token ~= token then return repeated(lease, owner, epoch, token) end
local places = {}
for at = 5, #ARGV, 5 do places[ARGV[at]] = at end
local ids = in_flight(partition)
for _, id in ipairs(ids) do
  local at = places[id]
  if at then call('HSET', row(id), 'fb', ARGV[at + 1], 'tp', ARGV[at + 2], 'to', ARGV[at + 3], 'tt', ARGV[at + 4]) end
  archive(id, partition)
end
return { 'DONE', close(lease, partition), #ids }
