-- A script, because a record is checked and deleted in one step: a confirmed one stays. ARGV: ids of dead letters. Returns 1.
for _, id in ipairs(ARGV) do
  local text = call('HGET', prefix .. 'letters', id)
  if text and not cjson.decode(text).arrived then call('HDEL', prefix .. 'letters', id) end
end
return 1
