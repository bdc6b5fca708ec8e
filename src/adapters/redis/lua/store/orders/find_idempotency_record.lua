-- A script, because the server's clock decides a record's age in the step that reads it.
-- ARGV: field, retention in ms. Returns the value; nil when the record is absent or too old.
local written = call('ZSCORE', prefix .. 'marks:age', ARGV[1])
if not written or now - tonumber(written) > tonumber(ARGV[2]) then return false end
return call('HGET', prefix .. 'marks', ARGV[1])
