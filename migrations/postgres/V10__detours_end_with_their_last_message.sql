-- Why: a message that is delivered again must not end the detour of its key before the last message has left it. A count does not distinguish
-- the two. A detour that is open now ends with the next message of its key. Instances of earlier versions go on with the count.
ALTER TABLE detour ADD COLUMN last_offset bigint NOT NULL DEFAULT 0, ALTER COLUMN outstanding SET DEFAULT 1;
