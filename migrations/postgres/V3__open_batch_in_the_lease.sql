-- Why: a claim wrote each row of its batch (status, owner, token, attempts), and the settlement deleted it right afterwards: a third of what
-- the relay asked of the server. Now a claim writes the lease row alone, which holds the ids of the rows that are still in the open batch. Such
-- a row is IN_FLIGHT and has one attempt more than the table says. Its attempts, and its death, are written when it leaves the batch in
-- another way than by being sent. Status 1 in the table is a row of a batch that an earlier version has opened: the next acquisition of the
-- partition converts it.
-- An earlier version that still runs can open and close its own batches. It cannot close a batch of this form, whose rows it would not find.
ALTER TABLE outbox_lease ADD COLUMN open_ids bigint[], ADD COLUMN claimer text,
  ADD CONSTRAINT outbox_lease_open_batch CHECK (in_flight IS NOT NULL OR open_ids IS NULL);
ALTER TABLE outbox_lease ALTER open_ids SET STORAGE EXTERNAL;
-- A row is written when it is created and, unless its first attempt fails, deleted: half-empty pages are no longer needed.
ALTER TABLE outbox SET (fillfactor = 90);

-- Every row that has not left, as it stands: rows of an open batch are IN_FLIGHT. All readers of a status read it here, but for the
-- statements that run under a lease without an open batch.
CREATE VIEW outbox_unsent AS
SELECT q.partition, q.id, q.key, q.bytes, q.deaths, q.trial_deaths, q.failure_type, q.reason,
  CASE WHEN l.in_flight IS NULL THEN q.status ELSE 1::smallint END AS status,
  CASE WHEN l.in_flight IS NULL THEN q.attempts ELSE q.attempts + 1 END AS attempts,
  CASE WHEN l.in_flight IS NULL THEN q.next_attempt_at END AS next_attempt_at,
  CASE WHEN l.in_flight IS NULL THEN q.lease_owner ELSE l.claimer END AS lease_owner,
  coalesce(l.in_flight, q.lease_version) AS lease_version
FROM outbox q LEFT JOIN outbox_lease l
  ON l.partition = q.partition AND q.id BETWEEN l.first_id AND l.last_id AND q.id = ANY (l.open_ids);

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
