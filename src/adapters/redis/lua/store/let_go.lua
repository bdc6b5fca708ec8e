-- Why a script: only a name that is still ours may be let go. ARGV: instance, boot.
local holder = front .. 'holder:' .. ARGV[1]
if call('HGET', holder, 'boot') == ARGV[2] then return call('DEL', holder) end
return 0
