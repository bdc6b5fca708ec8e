-- Why: the first schema of the embedded store. Orders, their outbox, the topic log and the inbox share one file, so that an order and its
-- events commit together, and records of the log commit together with the watermark of their partition. Migrations only go forward: a later
-- change is another file, and the statements of a released file never change.
-- Version 1. A time is in milliseconds of the store's clock. An id of an order or event is the 16 bytes of a UUID v7, which sort by time.

-- `meta`: a row is a property of the installation: its id, and its number of outbox partitions.
CREATE TABLE meta (name TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
-- `heartbeat` (V10: `store_probe`): the only row is the time of the store probe's last write. The probe rewrites it to check that a commit reaches
-- the disk.
CREATE TABLE heartbeat (one INTEGER PRIMARY KEY CHECK (one = 1), beaten_at INTEGER NOT NULL);

-- `orders`: a row is the current state of an order.
CREATE TABLE orders (
  id BLOB NOT NULL PRIMARY KEY, owner TEXT NOT NULL, status TEXT NOT NULL, version INTEGER NOT NULL,
  created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL,
  items TEXT NOT NULL,                           -- JSON: [[name, quantity, price as text], ...]
  total TEXT NOT NULL, region TEXT NOT NULL, hlc_millis INTEGER NOT NULL, hlc_counter INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX orders_by_owner ON orders (owner, id);
CREATE INDEX orders_by_status ON orders (status, id);
-- `order_count`: a row is the number of orders that have a status.
CREATE TABLE order_count (status TEXT NOT NULL PRIMARY KEY, orders INTEGER NOT NULL) WITHOUT ROWID;

-- `mark` (V10: `idempotency_record`): a row is the idempotency record of a create: the client's key, the fingerprint of its request, and the order.
-- The ids grow with time: the sweep deletes the oldest records from the front of the table and needs no index on the time.
CREATE TABLE mark (
  id INTEGER PRIMARY KEY, subject TEXT NOT NULL, key TEXT NOT NULL, fingerprint BLOB NOT NULL, order_id BLOB NOT NULL,
  created_at INTEGER NOT NULL, UNIQUE (subject, key)
);

-- `outbox_event`: a row is the content of an event. Rows are inserted once and never updated. The row with the largest id is never deleted,
-- because SQLite would assign its id again.
CREATE TABLE outbox_event (
  id INTEGER PRIMARY KEY, event_id BLOB NOT NULL UNIQUE, key BLOB NOT NULL, type TEXT NOT NULL, topic TEXT NOT NULL,
  partition INTEGER NOT NULL, sequence INTEGER NOT NULL, occurred_at INTEGER NOT NULL, region TEXT NOT NULL,
  hlc_millis INTEGER NOT NULL, hlc_counter INTEGER NOT NULL, traceparent TEXT, tracestate TEXT, created_at INTEGER NOT NULL,
  payload BLOB                                   -- the last column: SQLite reads the others without its overflow pages
);
CREATE INDEX outbox_event_by_key ON outbox_event (key, id);

-- `outbox`: a row is the state of an event that is not sent yet. The rows are narrow, because each is written three times: inserted, claimed and
-- deleted. `deaths` is the number of claimers that died with the row in flight, `trial_deaths` of those that had claimed it alone.
-- status: 0 PENDING, 1 IN_FLIGHT, 2 FAILED, 3 PARKED with its key, 4 PARKED alone.
CREATE TABLE outbox (
  partition INTEGER NOT NULL, id INTEGER NOT NULL, key BLOB NOT NULL, status INTEGER NOT NULL DEFAULT 0,
  attempts INTEGER NOT NULL DEFAULT 0, deaths INTEGER NOT NULL DEFAULT 0, trial_deaths INTEGER NOT NULL DEFAULT 0,
  lease_owner INTEGER, lease_version INTEGER NOT NULL DEFAULT 0, next_attempt_at INTEGER, failure_type TEXT, reason TEXT,
  PRIMARY KEY (partition, id)
) WITHOUT ROWID;
-- Few rows are FAILED or PARKED. These two partial indexes contain only them, so that a row that is sent at its first attempt is in neither.
CREATE INDEX outbox_waiting ON outbox (partition, key, id) WHERE status >= 2;
CREATE INDEX outbox_waiting_by_id ON outbox (id) WHERE status >= 2;
CREATE INDEX outbox_died ON outbox (partition, id) WHERE deaths > 0;

-- `outbox_blocked`: a row is a key whose later rows wait behind its head, the first row of the key that is FAILED or PARKED with its key.
-- `next_attempt_at` is NULL if the head is parked.
CREATE TABLE outbox_blocked (
  partition INTEGER NOT NULL, key BLOB NOT NULL, head_id INTEGER NOT NULL, next_attempt_at INTEGER, suspect INTEGER NOT NULL,
  PRIMARY KEY (partition, key)
) WITHOUT ROWID;
CREATE INDEX outbox_blocked_due ON outbox_blocked (partition, next_attempt_at);

-- `outbox_lease`: a row is the lease of a partition with the open batch. Every claim and settlement of the partition updates this row, which
-- serialises them. `counter` is the last token, `in_flight` the token of the open batch, `lane` the producer session that publishes it,
-- `claim_epoch` the epoch under which it was claimed, first_id and last_id the range of its ids. `died`: the next owner determined that the
-- claimer had died. `trial`: the batch is one suspect row. `closed`: the token of the last closed batch.
CREATE TABLE outbox_lease (
  partition INTEGER PRIMARY KEY, owner TEXT, epoch INTEGER NOT NULL DEFAULT 0, expires_at INTEGER, counter INTEGER NOT NULL DEFAULT 0,
  in_flight INTEGER, lane TEXT, claim_epoch INTEGER, died INTEGER NOT NULL DEFAULT 0, trial INTEGER NOT NULL DEFAULT 0,
  first_id INTEGER, last_id INTEGER, closed INTEGER
);
-- `outbox_count`: a row has the number of a partition's events in each status.
CREATE TABLE outbox_count (
  partition INTEGER PRIMARY KEY, pending INTEGER NOT NULL DEFAULT 0, in_flight INTEGER NOT NULL DEFAULT 0,
  failed INTEGER NOT NULL DEFAULT 0, parked INTEGER NOT NULL DEFAULT 0, sent INTEGER NOT NULL DEFAULT 0
);
-- `member` (V10: `relay_instance`): a row is a running instance of the relay. Its leases expire when it has not updated the row for `dead_after_ms`.
CREATE TABLE member (instance TEXT NOT NULL PRIMARY KEY, seen_at INTEGER NOT NULL, dead_after_ms INTEGER NOT NULL) WITHOUT ROWID;
-- `claimer`: a row is the name of an instance that has claimed rows, and the number that other tables have instead of the name.
CREATE TABLE claimer (number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);

-- `outbox_archive`: a row is an event that was sent. `topic` is NULL if it is the topic of the event.
CREATE TABLE outbox_archive (
  id INTEGER PRIMARY KEY, partition INTEGER NOT NULL, token INTEGER NOT NULL, owner INTEGER, attempts INTEGER NOT NULL,
  deaths INTEGER NOT NULL, sent_at INTEGER NOT NULL, topic TEXT, topic_partition INTEGER, topic_offset INTEGER,
  by_fallback INTEGER NOT NULL, failure_type TEXT, reason TEXT
);
-- `audit` (V10: `outbox_audit`): a row is an action of an operator: `who` is the operator, `why` the reason that the operator gave.
CREATE TABLE audit (
  id INTEGER PRIMARY KEY, acted_at INTEGER NOT NULL, action TEXT NOT NULL, row_id INTEGER, who TEXT NOT NULL, why TEXT NOT NULL
);

-- The embedded broker. `topic`: a row is a topic; its partitions have the numbers from `first` on.
CREATE TABLE topic (name TEXT NOT NULL PRIMARY KEY, first INTEGER NOT NULL, partitions INTEGER NOT NULL) WITHOUT ROWID;
-- `topic_partition`: a row is a partition of a topic, with the offset that its next record gets.
CREATE TABLE topic_partition (number INTEGER PRIMARY KEY, next_offset INTEGER NOT NULL DEFAULT 0);
-- `log`: a row is a record. `place` is the number of its partition << 40 | its offset.
CREATE TABLE log (
  place INTEGER PRIMARY KEY, appended_at INTEGER NOT NULL, timestamp INTEGER NOT NULL, key TEXT NOT NULL, headers BLOB NOT NULL,
  value BLOB NOT NULL
);
-- `relay_watermark`: a row is the highest token of an outbox partition whose batch is committed in the log.
CREATE TABLE relay_watermark (partition INTEGER PRIMARY KEY, token INTEGER NOT NULL);
-- `lane` (V10: `producer_session`): a row is a slot for producer sessions (`base`), with the number of its last session, so that no number is used
-- twice. `id` is the open session of the slot; NULL after it was fenced.
CREATE TABLE lane (base TEXT NOT NULL PRIMARY KEY, session INTEGER NOT NULL, id TEXT UNIQUE) WITHOUT ROWID;
-- `group_offset`: a row is the offset that a consumer group has committed for a topic partition.
CREATE TABLE group_offset (
  consumer_group TEXT NOT NULL, number INTEGER NOT NULL, next_offset INTEGER NOT NULL, seen_at INTEGER NOT NULL,
  PRIMARY KEY (consumer_group, number)
) WITHOUT ROWID;

-- `processed_events`: the inbox; a row is an event that a consumer group has processed. The ids grow with time, as in `mark`.
CREATE TABLE processed_events (
  id INTEGER PRIMARY KEY, consumer_group TEXT NOT NULL, event_id BLOB NOT NULL, topic TEXT NOT NULL, partition INTEGER NOT NULL,
  offset INTEGER NOT NULL, processed_at INTEGER NOT NULL, UNIQUE (consumer_group, event_id)
);
-- `remote_stamp`: a row is the stamp of the latest event of an order from another region: region and hybrid logical clock.
CREATE TABLE remote_stamp (
  order_id BLOB NOT NULL PRIMARY KEY, region TEXT NOT NULL, hlc_millis INTEGER NOT NULL, hlc_counter INTEGER NOT NULL
) WITHOUT ROWID;
-- `detour` (V10: `retry_route`): a row is the retry route of a key: the retry topic (`stage`) through which the later messages of the key follow
-- one that failed, and how many messages of the key are in it (V8: the offset of the last of them).
CREATE TABLE detour (
  consumer_group TEXT NOT NULL, key TEXT NOT NULL, stage INTEGER NOT NULL, outstanding INTEGER NOT NULL,
  PRIMARY KEY (consumer_group, key)
) WITHOUT ROWID;

-- `outbox_rows`, for operators: a row is an event of the outbox or of the archive, with the names of statuses and readable ids and times.
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

-- `outbox_debezium`: a row is an event with the columns of Debezium's outbox table, for programs that read that table.
CREATE VIEW outbox_debezium AS
SELECT
  lower(printf('%s-%s-%s-%s-%s', substr(hex(event_id), 1, 8), substr(hex(event_id), 9, 4), substr(hex(event_id), 13, 4),
    substr(hex(event_id), 17, 4), substr(hex(event_id), 21))) AS id,
  'order' AS aggregatetype,
  lower(printf('%s-%s-%s-%s-%s', substr(hex(key), 1, 8), substr(hex(key), 9, 4), substr(hex(key), 13, 4), substr(hex(key), 17, 4),
    substr(hex(key), 21))) AS aggregateid,
  type, CAST(payload AS TEXT) AS payload
FROM outbox_event ORDER BY outbox_event.id;
