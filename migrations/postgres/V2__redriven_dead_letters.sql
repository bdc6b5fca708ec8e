-- Why: a dead-letter record stays in its topic when it is sent again, so the store records which of them were sent: each is sent again once, and the
-- row names the operator and the reason. The offsets of a topic that was deleted and created again begin at 0, so the key of the table contains
-- the time of the record (in milliseconds).

-- `redriven_letter` (V20: `redriven_dead_letter`): a row is a dead-letter record that an operator sent again. `arrived`: the broker has
-- acknowledged the copy. `who` is the operator, `why` the reason.
CREATE TABLE redriven_letter (
  topic text COLLATE "C" NOT NULL, partition integer NOT NULL, "offset" bigint NOT NULL, timestamp bigint NOT NULL,
  taken_at timestamptz NOT NULL, arrived boolean NOT NULL DEFAULT false, who text NOT NULL, why text NOT NULL,
  PRIMARY KEY (topic, partition, "offset", timestamp)
);
