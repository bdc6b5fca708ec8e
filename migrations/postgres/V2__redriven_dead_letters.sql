-- Why: dead letters stay in their topic when they are sent back, so the store remembers which of them were: each goes back once, and who
-- asked for it is kept. A topic that is made anew counts from 0 again, so the record's time (milliseconds) belongs to a letter's name.
CREATE TABLE redriven_letter (
  topic text COLLATE "C" NOT NULL, partition integer NOT NULL, "offset" bigint NOT NULL, timestamp bigint NOT NULL,
  taken_at timestamptz NOT NULL, arrived boolean NOT NULL DEFAULT false, who text NOT NULL, why text NOT NULL,
  PRIMARY KEY (topic, partition, "offset", timestamp)
);
