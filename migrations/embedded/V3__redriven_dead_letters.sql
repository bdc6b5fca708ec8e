-- Why: dead letters stay in their topic when they are sent back, so the store remembers which of them were: each goes back once, and who
-- asked for it is kept. A topic that is made anew counts from 0 again, so the record's time belongs to a letter's name.
-- Version 3.
CREATE TABLE redriven_letter (
  topic TEXT NOT NULL, partition INTEGER NOT NULL, offset INTEGER NOT NULL, timestamp INTEGER NOT NULL, taken_at INTEGER NOT NULL,
  arrived INTEGER NOT NULL DEFAULT 0, who TEXT NOT NULL, why TEXT NOT NULL, PRIMARY KEY (topic, partition, offset, timestamp)
) WITHOUT ROWID;
