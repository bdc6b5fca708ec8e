-- Why: a message that is delivered twice must not end the retry route (`detour`) of its key before the last message of the route was processed.
-- A count does not distinguish the two deliveries, so the table has the offset of the last message. A route that is open during the migration
-- ends with the next message of its key. Instances of earlier versions still use the count.
ALTER TABLE detour ADD COLUMN last_offset bigint NOT NULL DEFAULT 0, ALTER COLUMN outstanding SET DEFAULT 1;
