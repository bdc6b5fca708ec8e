-- A script, because of two callers that reserve a dead letter only one may get it.
-- ARGV: ms after which an unconfirmed reservation may be replaced, operator, reason, then ids of dead letters. Returns 1 for each that the
-- caller has reserved, else 0.
local result = {}
for index = 4, #ARGV do
  local id = ARGV[index]
  local text = call('HGET', prefix .. 'letters', id)
  local record = text and cjson.decode(text)
  local free = not record or (not record.arrived and now - tonumber(record.at) >= tonumber(ARGV[1]))
  if free then
    call('HSET', prefix .. 'letters', id, cjson.encode({ who = ARGV[2], why = ARGV[3], at = integer(now), arrived = false }))
  end
  result[#result + 1] = free and 1 or 0
end
return result
