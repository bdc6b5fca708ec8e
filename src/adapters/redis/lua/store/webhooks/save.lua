-- A script, because the version is checked and the document written in one step. ARGV: id, version, document. Returns 1 if it was stored.
local id, version, document = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local text = call('HGET', prefix .. 'webhooks', id)
local stored = text and cjson.decode(text).version or 0
if stored ~= version - 1 then return 0 end
call('HSET', prefix .. 'webhooks', id, document)
return 1
