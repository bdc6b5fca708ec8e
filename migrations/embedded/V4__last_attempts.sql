-- Why: operators need the time of an event's last attempt. The lease row has the time of the claim of its open batch, which is the last attempt of
-- each row of the batch. The time is copied to a row that leaves the batch with its attempt counted, and to the archive. Rows of earlier
-- versions have no time.
-- Version 4.
ALTER TABLE outbox_lease ADD COLUMN claimed_at INTEGER;
ALTER TABLE outbox ADD COLUMN last_attempt_at INTEGER;
ALTER TABLE outbox_archive ADD COLUMN last_attempt_at INTEGER;
DROP VIEW outbox_rows;
-- The same view with the time of the last attempt.
CREATE VIEW outbox_rows AS
WITH every AS (
  SELECT q.id, e.event_id, q.key, e.type, q.partition,
    CASE q.status WHEN 0 THEN 'PENDING' WHEN 1 THEN 'IN_FLIGHT' WHEN 2 THEN 'FAILED' ELSE 'PARKED' END AS status,
    q.lease_owner, q.lease_version, q.attempts AS retry_count, q.next_attempt_at, q.failure_type,
    q.reason AS last_failure_reason, e.created_at, NULL AS sent_at,
    CASE q.status WHEN 1 THEN (SELECT claimed_at FROM outbox_lease l WHERE l.partition = q.partition) ELSE q.last_attempt_at END
      AS last_attempt_at
  FROM outbox q LEFT JOIN outbox_event e ON e.id = q.id
  UNION ALL
  SELECT a.id, e.event_id, e.key, e.type, a.partition, 'SENT', a.owner, a.token, a.attempts, NULL, a.failure_type, a.reason,
    e.created_at, a.sent_at, a.last_attempt_at
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
  strftime('%Y-%m-%dT%H:%M:%fZ', sent_at / 1000.0, 'unixepoch') AS sent_at,
  strftime('%Y-%m-%dT%H:%M:%fZ', last_attempt_at / 1000.0, 'unixepoch') AS last_attempt_at
FROM every;
