-- Why: the relay parsed the value of each of the service's own events again before it sent it, because another program may have changed the row.
-- The checksum that the codec computed from the value shows without parsing that it is unchanged. It is NULL in rows of earlier versions. The
-- relay checks in full the values without a checksum, and those that do not match it, as before. No row is rewritten.
-- Version 9.
ALTER TABLE outbox_event ADD COLUMN contract_checksum INTEGER;
