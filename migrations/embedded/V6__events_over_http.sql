-- Why: other services publish events over HTTP, and the store numbers them.
-- Version 6.

-- `outbox_sequence`: a row is the last number of a key in a topic, which records have in the header `x-sequence`. `key` is that of `outbox`.
CREATE TABLE outbox_sequence (topic TEXT NOT NULL, key BLOB NOT NULL, last INTEGER NOT NULL, PRIMARY KEY (topic, key)) WITHOUT ROWID;
