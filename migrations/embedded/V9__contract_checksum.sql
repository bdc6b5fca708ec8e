-- Why: the relay parsed the value of each of the service's own events again before it sent it, because another program may have changed the row.
-- The codec's checksum of the value shows that without parsing. It is NULL in the rows of earlier versions, whose values are checked in full as
-- before; so are those that do not match it. No row is rewritten.
ALTER TABLE outbox_event ADD COLUMN contract_checksum INTEGER;
