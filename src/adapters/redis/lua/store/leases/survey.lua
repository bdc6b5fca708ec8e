-- A script, because members and leases must be of one moment.
-- ARGV: instance, the number of partitions. Returns the live members in the order of their names, each with the number of its leases; the
-- partitions that the instance holds; and those that any instance may acquire, each with the ms for which it has been free, the longest first.
local dead_at, alive, names, loads = {}, {}, {}, {}
local rows = call('HGETALL', prefix .. 'members')
for index = 1, #rows, 2 do
  local seen, limit = string.match(rows[index + 1], '^(%S+) (%S+)$')
  dead_at[rows[index]] = tonumber(seen) + tonumber(limit)
  alive[rows[index]] = dead_at[rows[index]] > now
  if alive[rows[index]] then
    names[#names + 1], loads[rows[index]] = rows[index], 0
  end
end
local own, free = {}, {}
for partition = 0, tonumber(ARGV[2]) - 1 do
  local lease = read_lease(partition)
  -- An owner without a heartbeat row is not known to be dead: its lease runs until it expires.
  if not lease.owner or tonumber(lease.expires or '0') <= now or alive[lease.owner] == false then
    local since = tonumber(lease.expires or '0')
    free[#free + 1] = { partition, math.min(since, dead_at[lease.owner or ''] or since) }
  else
    if lease.owner == ARGV[1] then own[#own + 1] = partition end
    if alive[lease.owner] then loads[lease.owner] = loads[lease.owner] + 1 end
  end
end
table.sort(names, before)
table.sort(free, function(a, b) return a[2] < b[2] or (a[2] == b[2] and a[1] < b[1]) end)
for _, entry in ipairs(free) do entry[2] = integer(now - entry[2]) end
local members = {}
for index, name in ipairs(names) do members[index] = { name, loads[name] } end
return { members, own, free }
