-- A script, because only the holder may release the instance id. ARGV: instance, boot id. Returns 1 when it was released.
local holder = prefix .. 'holder:' .. ARGV[1]
if call('HGET', holder, 'boot') == ARGV[2] then return call('DEL', holder) end
return 0
