-- Why a script: ids and their rows of one moment.
-- ARGV: the set's name, behind which id, how many. Answers rows as operators see them.
local found = {}
for place, id in ipairs(call('ZRANGEBYSCORE', front .. ARGV[1], '(' .. ARGV[2], '+inf', 'LIMIT', 0, ARGV[3])) do found[place] = shown(id) end
return found
