-- A script, because the store reads rows with scripts only, whose key prefix is their one key.
-- ARGV: the id of a row. Returns its event as a claim returns it, with the attempts made so far; nothing if there is none.
local id = ARGV[1]
local row = call('HMGET', row_key(id), 'ev', 'k', 'ty', 'e', 'y', 'a', 'c', 'xm')
if not row[1] then return {} end
row[9] = id
return row
