-- Why: a dead-letter record stays in its topic when it is sent again, so the store records which of them were sent: each is sent again once, and the
-- row names the operator and the reason. The offsets of a topic that was deleted and created again begin at 0, so the key of the table contains
-- the time of the record.
-- Version 3.

-- `redriven_letter` (V10: `redriven_dead_letter`): a row is a dead-letter record that an operator sent again. `arrived`: the broker has
-- acknowledged the copy. `who` is the operator, `why` the reason.
CREATE TABLE redriven_letter (
  topic TEXT NOT NULL, partition INTEGER NOT NULL, offset INTEGER NOT NULL, timestamp INTEGER NOT NULL, taken_at INTEGER NOT NULL,
  arrived INTEGER NOT NULL DEFAULT 0, who TEXT NOT NULL, why TEXT NOT NULL, PRIMARY KEY (topic, partition, offset, timestamp)
) WITHOUT ROWID;
