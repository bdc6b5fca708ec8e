-- Why: other services hand events over by HTTP, and the store numbers them.
-- Version 6.
-- The last number of each key in each topic: `x-sequence`. The key is its group, as in `outbox`.
CREATE TABLE outbox_sequence (topic TEXT NOT NULL, key BLOB NOT NULL, last INTEGER NOT NULL, PRIMARY KEY (topic, key)) WITHOUT ROWID;
