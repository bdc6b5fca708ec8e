-- Why a script: of two who take a letter one gets it.
-- ARGV: `take`, again after in ms, who, why, then names; answers 1 for each that is the caller's. `arrived`, `release` or `known`, then
-- names; `known` answers of each: who, why, when, 1 when it arrived.
local letters, action, told = front .. 'letters', ARGV[1], {}
for at = action == 'take' and 5 or 2, #ARGV do
  local name = ARGV[at]
  local text = call('HGET', letters, name)
  local known = text and cjson.decode(text)
  if action == 'take' then
    local free = not known or (not known.arrived and now - tonumber(known.at) >= tonumber(ARGV[2]))
    if free then call('HSET', letters, name, cjson.encode({ who = ARGV[3], why = ARGV[4], at = whole(now), arrived = false })) end
    told[#told + 1] = free and 1 or 0
  elseif action == 'arrived' and known then
    known.arrived = true
    call('HSET', letters, name, cjson.encode(known))
  elseif action == 'release' and known and not known.arrived then
    call('HDEL', letters, name)
  elseif action == 'known' then
    told[#told + 1] = known and { known.who, known.why, known.at, known.arrived and 1 or 0 } or {}
  end
end
return told
