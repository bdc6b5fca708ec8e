-- Why: a claim wrote each row of its batch (status, owner, token, attempts), and the settlement deleted the row right afterwards: a third of the
-- work that the relay caused on the server. Now a claim writes only the lease row, which has the ids of the rows that are in the open batch. Such
-- a row is IN_FLIGHT and has one attempt more than its columns show. The relay writes the attempt, and a death, when the row leaves the batch
-- without being sent. Status 1 in the table is a row of a batch that an earlier version has opened: the next acquisition of the partition converts
-- it.
-- An instance of an earlier version that still runs can open and close its own batches. It cannot close a batch of this form, because it would not
-- find the rows.
ALTER TABLE outbox_lease ADD COLUMN open_ids bigint[], ADD COLUMN claimer text,
  ADD CONSTRAINT outbox_lease_open_batch CHECK (in_flight IS NOT NULL OR open_ids IS NULL);
ALTER TABLE outbox_lease ALTER open_ids SET STORAGE EXTERNAL;
-- A row is inserted and, unless its first attempt fails, deleted without an update between: half of each page need not be free any more.
ALTER TABLE outbox SET (fillfactor = 90);

-- `outbox_unsent`: a row is an event that is not sent yet, with its current state: rows of an open batch are IN_FLIGHT. Every statement that needs a
-- status reads it here, except those that run under a lease without an open batch.
CREATE VIEW outbox_unsent AS
SELECT q.partition, q.id, q.key, q.bytes, q.deaths, q.trial_deaths, q.failure_type, q.reason,
  CASE WHEN l.in_flight IS NULL THEN q.status ELSE 1::smallint END AS status,
  CASE WHEN l.in_flight IS NULL THEN q.attempts ELSE q.attempts + 1 END AS attempts,
  CASE WHEN l.in_flight IS NULL THEN q.next_attempt_at END AS next_attempt_at,
  CASE WHEN l.in_flight IS NULL THEN q.lease_owner ELSE l.claimer END AS lease_owner,
  coalesce(l.in_flight, q.lease_version) AS lease_version
FROM outbox q LEFT JOIN outbox_lease l
  ON l.partition = q.partition AND q.id BETWEEN l.first_id AND l.last_id AND q.id = ANY (l.open_ids);

-- The same view as before, on outbox_unsent.
CREATE OR REPLACE VIEW outbox_rows AS
SELECT q.id, e.event_id, q.key, e.type, q.partition,
  CASE q.status WHEN 0 THEN 'PENDING' WHEN 1 THEN 'IN_FLIGHT' WHEN 2 THEN 'FAILED' ELSE 'PARKED' END AS status,
  q.lease_owner, q.lease_version, q.attempts AS retry_count, q.next_attempt_at, q.failure_type, q.reason AS last_failure_reason,
  e.created_at, NULL::timestamptz AS sent_at
FROM outbox_unsent q LEFT JOIN outbox_event e ON e.id = q.id
UNION ALL
SELECT i.id, e.event_id, e.key, e.type, a.partition, 'SENT', a.owner, a.token, coalesce(i.attempts, 1), NULL, i.failure_type, i.reason,
  e.created_at, a.sent_at
FROM outbox_archive a CROSS JOIN LATERAL unnest(a.ids, a.attempts, a.failure_types, a.reasons) AS i (id, attempts, failure_type, reason)
  LEFT JOIN outbox_event e ON e.id = i.id;
