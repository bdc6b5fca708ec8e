-- Why: the first schema of the embedded store. Orders, their outbox, the topic log and the inbox share one file, so that an order and its
-- events commit together, and records and their watermark do. Forward only: a released file never changes, the next step is a new one.
-- Version 1. Times are milliseconds of the store's clock. Ids of orders and events are the sixteen bytes of a UUID v7, which sort by time.
CREATE TABLE meta (name TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
-- One row that the probe rewrites: a sign of life that needs the whole way to the disk.
CREATE TABLE heartbeat (one INTEGER PRIMARY KEY CHECK (one = 1), beaten_at INTEGER NOT NULL);

CREATE TABLE orders (
  id BLOB NOT NULL PRIMARY KEY, owner TEXT NOT NULL, status TEXT NOT NULL, version INTEGER NOT NULL,
  created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL,
  items TEXT NOT NULL,                           -- JSON: [[name, quantity, price as text], ...]
  total TEXT NOT NULL, region TEXT NOT NULL, hlc_millis INTEGER NOT NULL, hlc_counter INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX orders_by_owner ON orders (owner, id);
CREATE INDEX orders_by_status ON orders (status, id);
CREATE TABLE order_count (status TEXT NOT NULL PRIMARY KEY, orders INTEGER NOT NULL) WITHOUT ROWID;

-- The rowid grows with time, so the oldest marks stand in front and the sweep needs no index of its own.
CREATE TABLE mark (
  id INTEGER PRIMARY KEY, subject TEXT NOT NULL, key TEXT NOT NULL, fingerprint BLOB NOT NULL, order_id BLOB NOT NULL,
  created_at INTEGER NOT NULL, UNIQUE (subject, key)
);

-- What an event says; written once, never changed. The newest row is never deleted, so that its id is never drawn again.
CREATE TABLE outbox_event (
  id INTEGER PRIMARY KEY, event_id BLOB NOT NULL UNIQUE, key BLOB NOT NULL, type TEXT NOT NULL, topic TEXT NOT NULL,
  partition INTEGER NOT NULL, sequence INTEGER NOT NULL, occurred_at INTEGER NOT NULL, region TEXT NOT NULL,
  hlc_millis INTEGER NOT NULL, hlc_counter INTEGER NOT NULL, traceparent TEXT, tracestate TEXT, created_at INTEGER NOT NULL,
  payload BLOB                                   -- last, so that reading the rest does not walk through it
);
CREATE INDEX outbox_event_by_key ON outbox_event (key, id);

-- Where an event stands; narrow, because it is written three times. Holds only what has not left.
-- status: 0 PENDING, 1 IN_FLIGHT, 2 FAILED, 3 PARKED with its key, 4 PARKED alone.
CREATE TABLE outbox (
  partition INTEGER NOT NULL, id INTEGER NOT NULL, key BLOB NOT NULL, status INTEGER NOT NULL DEFAULT 0,
  attempts INTEGER NOT NULL DEFAULT 0, deaths INTEGER NOT NULL DEFAULT 0, trial_deaths INTEGER NOT NULL DEFAULT 0,
  lease_owner INTEGER, lease_version INTEGER NOT NULL DEFAULT 0, next_attempt_at INTEGER, failure_type TEXT, reason TEXT,
  PRIMARY KEY (partition, id)
) WITHOUT ROWID;
-- Rows that wait or are parked are few; these two indexes hold nothing else, so the hot path does not pay for them.
CREATE INDEX outbox_waiting ON outbox (partition, key, id) WHERE status >= 2;
CREATE INDEX outbox_waiting_by_id ON outbox (id) WHERE status >= 2;
CREATE INDEX outbox_died ON outbox (partition, id) WHERE deaths > 0;

-- Keys whose line waits: the head is the key's first row that is FAILED or PARKED with its key. No time = parked.
CREATE TABLE outbox_blocked (
  partition INTEGER NOT NULL, key BLOB NOT NULL, head_id INTEGER NOT NULL, next_attempt_at INTEGER, suspect INTEGER NOT NULL,
  PRIMARY KEY (partition, key)
) WITHOUT ROWID;
CREATE INDEX outbox_blocked_due ON outbox_blocked (partition, next_attempt_at);

-- The only point of concurrency of a partition. `claim_epoch` says under which acquisition the open batch was claimed, `died` what the
-- first taker after that found out about its claimer, first_id and last_id where its rows lie; `closed` is the last batch that was closed.
CREATE TABLE outbox_lease (
  partition INTEGER PRIMARY KEY, owner TEXT, epoch INTEGER NOT NULL DEFAULT 0, expires_at INTEGER, counter INTEGER NOT NULL DEFAULT 0,
  in_flight INTEGER, lane TEXT, claim_epoch INTEGER, died INTEGER NOT NULL DEFAULT 0, trial INTEGER NOT NULL DEFAULT 0,
  first_id INTEGER, last_id INTEGER, closed INTEGER
);
CREATE TABLE outbox_count (
  partition INTEGER PRIMARY KEY, pending INTEGER NOT NULL DEFAULT 0, in_flight INTEGER NOT NULL DEFAULT 0,
  failed INTEGER NOT NULL DEFAULT 0, parked INTEGER NOT NULL DEFAULT 0, sent INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE member (instance TEXT NOT NULL PRIMARY KEY, seen_at INTEGER NOT NULL, dead_after_ms INTEGER NOT NULL) WITHOUT ROWID;
-- Names of claimers, so that a row carries a small number instead.
CREATE TABLE claimer (number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);

-- What has left. `topic` only where it is not the event's own.
CREATE TABLE outbox_archive (
  id INTEGER PRIMARY KEY, partition INTEGER NOT NULL, token INTEGER NOT NULL, owner INTEGER, attempts INTEGER NOT NULL,
  deaths INTEGER NOT NULL, sent_at INTEGER NOT NULL, topic TEXT, topic_partition INTEGER, topic_offset INTEGER,
  by_fallback INTEGER NOT NULL, failure_type TEXT, reason TEXT
);
CREATE TABLE audit (
  id INTEGER PRIMARY KEY, acted_at INTEGER NOT NULL, action TEXT NOT NULL, row_id INTEGER, who TEXT NOT NULL, why TEXT NOT NULL
);

-- The broker: topics, their partitions numbered through, and one log whose key is number << 40 | offset.
CREATE TABLE topic (name TEXT NOT NULL PRIMARY KEY, first INTEGER NOT NULL, partitions INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE topic_partition (number INTEGER PRIMARY KEY, next_offset INTEGER NOT NULL DEFAULT 0);
CREATE TABLE log (
  place INTEGER PRIMARY KEY, appended_at INTEGER NOT NULL, timestamp INTEGER NOT NULL, key TEXT NOT NULL, headers BLOB NOT NULL,
  value BLOB NOT NULL
);
CREATE TABLE relay_watermark (partition INTEGER PRIMARY KEY, token INTEGER NOT NULL);
-- `id` is the session that lives; none while the slot is fenced.
CREATE TABLE lane (base TEXT NOT NULL PRIMARY KEY, session INTEGER NOT NULL, id TEXT UNIQUE) WITHOUT ROWID;
CREATE TABLE group_offset (
  consumer_group TEXT NOT NULL, number INTEGER NOT NULL, next_offset INTEGER NOT NULL, seen_at INTEGER NOT NULL,
  PRIMARY KEY (consumer_group, number)
) WITHOUT ROWID;

-- The inbox. As with marks, the oldest stand in front.
CREATE TABLE processed_events (
  id INTEGER PRIMARY KEY, consumer_group TEXT NOT NULL, event_id BLOB NOT NULL, topic TEXT NOT NULL, partition INTEGER NOT NULL,
  offset INTEGER NOT NULL, processed_at INTEGER NOT NULL, UNIQUE (consumer_group, event_id)
);
CREATE TABLE remote_stamp (
  order_id BLOB NOT NULL PRIMARY KEY, region TEXT NOT NULL, hlc_millis INTEGER NOT NULL, hlc_counter INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE detour (
  consumer_group TEXT NOT NULL, key TEXT NOT NULL, stage INTEGER NOT NULL, outstanding INTEGER NOT NULL,
  PRIMARY KEY (consumer_group, key)
) WITHOUT ROWID;

-- For people: every row, living or archived, in one shape and with readable names and times.
CREATE VIEW outbox_rows AS
WITH every AS (
  SELECT q.id, e.event_id, q.key, e.type, q.partition,
    CASE q.status WHEN 0 THEN 'PENDING' WHEN 1 THEN 'IN_FLIGHT' WHEN 2 THEN 'FAILED' ELSE 'PARKED' END AS status,
    q.lease_owner, q.lease_version, q.attempts AS retry_count, q.next_attempt_at, q.failure_type,
    q.reason AS last_failure_reason, e.created_at, NULL AS sent_at
  FROM outbox q LEFT JOIN outbox_event e ON e.id = q.id
  UNION ALL
  SELECT a.id, e.event_id, e.key, e.type, a.partition, 'SENT', a.owner, a.token, a.attempts, NULL, a.failure_type, a.reason,
    e.created_at, a.sent_at
  FROM outbox_archive a LEFT JOIN outbox_event e ON e.id = a.id
)
SELECT id,
  lower(printf('%s-%s-%s-%s-%s', substr(hex(event_id), 1, 8), substr(hex(event_id), 9, 4), substr(hex(event_id), 13, 4),
    substr(hex(event_id), 17, 4), substr(hex(event_id), 21))) AS event_id,
  lower(printf('%s-%s-%s-%s-%s', substr(hex(key), 1, 8), substr(hex(key), 9, 4), substr(hex(key), 13, 4), substr(hex(key), 17, 4),
    substr(hex(key), 21))) AS key,
  type, partition, status, (SELECT name FROM claimer WHERE number = every.lease_owner) AS lease_owner, lease_version, retry_count,
  strftime('%Y-%m-%dT%H:%M:%fZ', next_attempt_at / 1000.0, 'unixepoch') AS next_attempt_at, failure_type, last_failure_reason,
  strftime('%Y-%m-%dT%H:%M:%fZ', created_at / 1000.0, 'unixepoch') AS created_at,
  strftime('%Y-%m-%dT%H:%M:%fZ', sent_at / 1000.0, 'unixepoch') AS sent_at
FROM every;

-- For readers that expect Debezium's outbox table.
CREATE VIEW outbox_debezium AS
SELECT
  lower(printf('%s-%s-%s-%s-%s', substr(hex(event_id), 1, 8), substr(hex(event_id), 9, 4), substr(hex(event_id), 13, 4),
    substr(hex(event_id), 17, 4), substr(hex(event_id), 21))) AS id,
  'order' AS aggregatetype,
  lower(printf('%s-%s-%s-%s-%s', substr(hex(key), 1, 8), substr(hex(key), 9, 4), substr(hex(key), 13, 4), substr(hex(key), 17, 4),
    substr(hex(key), 21))) AS aggregateid,
  type, CAST(payload AS TEXT) AS payload
FROM outbox_event ORDER BY outbox_event.id;
