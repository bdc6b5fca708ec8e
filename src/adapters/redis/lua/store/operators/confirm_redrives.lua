-- A script, because a record is read and rewritten in one step. ARGV: ids of dead letters. Returns 1.
for _, id in ipairs(ARGV) do
  local text = call('HGET', prefix .. 'letters', id)
  if text then
    local record = cjson.decode(text)
    record.arrived = true
    call('HSET', prefix .. 'letters', id, cjson.encode(record))
  end
end
return 1
