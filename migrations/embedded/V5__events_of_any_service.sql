-- Why: rows were events of orders. Now a row is an event of any service: its key is any text, and it may have headers, another content type
-- than JSON, and the id of the request that wrote it. `key` is still the value by which the relay keeps the order of a key's events: for a key
-- that is a UUID it is that UUID, for every other text it is 16 bytes of the SHA-256 of the text, and `key_text` has the text. The region of an
-- event that regions do not exchange is empty. No row is rewritten.
-- Version 5.
ALTER TABLE outbox_event ADD COLUMN key_text TEXT;
ALTER TABLE outbox_event ADD COLUMN headers TEXT;
ALTER TABLE outbox_event ADD COLUMN content_type TEXT;
ALTER TABLE outbox_event ADD COLUMN request_id TEXT;
DROP VIEW outbox_rows;
-- The same view with the key as text, and the topic.
CREATE VIEW outbox_rows AS
WITH every AS (
  SELECT q.id, e.event_id, q.key, e.key_text, e.type, q.partition,
    CASE q.status WHEN 0 THEN 'PENDING' WHEN 1 THEN 'IN_FLIGHT' WHEN 2 THEN 'FAILED' ELSE 'PARKED' END AS status,
    q.lease_owner, q.lease_version, q.attempts AS retry_count, q.next_attempt_at, q.failure_type,
    q.reason AS last_failure_reason, e.created_at, NULL AS sent_at, e.topic,
    CASE q.status WHEN 1 THEN (SELECT claimed_at FROM outbox_lease l WHERE l.partition = q.partition) ELSE q.last_attempt_at END
      AS last_attempt_at
  FROM outbox q LEFT JOIN outbox_event e ON e.id = q.id
  UNION ALL
  SELECT a.id, e.event_id, e.key, e.key_text, e.type, a.partition, 'SENT', a.owner, a.token, a.attempts, NULL, a.failure_type, a.reason,
    e.created_at, a.sent_at, e.topic, a.last_attempt_at
  FROM outbox_archive a LEFT JOIN outbox_event e ON e.id = a.id
)
SELECT id,
  lower(printf('%s-%s-%s-%s-%s', substr(hex(event_id), 1, 8), substr(hex(event_id), 9, 4), substr(hex(event_id), 13, 4),
    substr(hex(event_id), 17, 4), substr(hex(event_id), 21))) AS event_id,
  coalesce(key_text, lower(printf('%s-%s-%s-%s-%s', substr(hex(key), 1, 8), substr(hex(key), 9, 4), substr(hex(key), 13, 4), substr(hex(key), 17, 4),
    substr(hex(key), 21)))) AS key,
  type, partition, status, (SELECT name FROM claimer WHERE number = every.lease_owner) AS lease_owner, lease_version, retry_count,
  strftime('%Y-%m-%dT%H:%M:%fZ', next_attempt_at / 1000.0, 'unixepoch') AS next_attempt_at, failure_type, last_failure_reason,
  strftime('%Y-%m-%dT%H:%M:%fZ', created_at / 1000.0, 'unixepoch') AS created_at,
  strftime('%Y-%m-%dT%H:%M:%fZ', sent_at / 1000.0, 'unixepoch') AS sent_at,
  strftime('%Y-%m-%dT%H:%M:%fZ', last_attempt_at / 1000.0, 'unixepoch') AS last_attempt_at, topic
FROM every;
DROP VIEW outbox_debezium;
-- The same view for events of any service. The aggregate type of an order's event is `order`; that of another event is its topic without the prefix
-- `outbox.event.` of Debezium's outbox event router.
CREATE VIEW outbox_debezium AS
SELECT
  lower(printf('%s-%s-%s-%s-%s', substr(hex(event_id), 1, 8), substr(hex(event_id), 9, 4), substr(hex(event_id), 13, 4),
    substr(hex(event_id), 17, 4), substr(hex(event_id), 21))) AS id,
  CASE WHEN region <> '' THEN 'order' WHEN topic LIKE 'outbox.event.%' THEN substr(topic, 14) ELSE topic END AS aggregatetype,
  coalesce(key_text, lower(printf('%s-%s-%s-%s-%s', substr(hex(key), 1, 8), substr(hex(key), 9, 4), substr(hex(key), 13, 4),
    substr(hex(key), 17, 4), substr(hex(key), 21)))) AS aggregateid,
  type, CAST(payload AS TEXT) AS payload
FROM outbox_event ORDER BY outbox_event.id;
