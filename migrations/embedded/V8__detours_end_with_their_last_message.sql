-- Why: a message that is delivered twice must not end the retry route (`detour`) of its key before the last message of the route was processed.
-- A count does not distinguish the two deliveries, so the table has the offset of the last message instead. A route that is open during the
-- migration ends with the next message of its key.
-- Version 8.
ALTER TABLE detour RENAME COLUMN outstanding TO last_offset;
