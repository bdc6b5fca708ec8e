-- Why: a message that is delivered again must not end the detour of its key before the last message has left it. A count does not distinguish
-- the two. A detour that is open now ends with the next message of its key.
ALTER TABLE detour RENAME COLUMN outstanding TO last_offset;
