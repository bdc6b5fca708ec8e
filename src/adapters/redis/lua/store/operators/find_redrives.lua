-- A script, because it decodes the records where they are stored. ARGV: ids of dead letters. Returns of each: operator, reason, time, 1 if
-- it is confirmed; nothing for an id without a record.
local records = {}
for index, id in ipairs(ARGV) do
  local text = call('HGET', prefix .. 'letters', id)
  local record = text and cjson.decode(text)
  records[index] = record and { record.who, record.why, record.at, record.arrived and 1 or 0 } or {}
end
return records
