-- Why: operators need the time of an event's last attempt. A claim writes only the lease row, so the lease row has the time: that of the last attempt
-- of each row in the open batch. The relay copies it to a row that leaves the batch with its attempt counted, and to the archive row of a
-- batch that was sent. No statement of the relay writes more rows than before. Batches of earlier versions have no time.
ALTER TABLE outbox_lease ADD COLUMN claimed_at timestamptz;
ALTER TABLE outbox ADD COLUMN last_attempt_at timestamptz;
ALTER TABLE outbox_archive ADD COLUMN claimed_at timestamptz;

DROP FUNCTION outbox_sent(integer, bigint);
CREATE FUNCTION outbox_sent(of_partition integer, of_id bigint) RETURNS TABLE (
  token bigint, sent_at timestamptz, owner text, attempts integer, deaths smallint, topic_partition integer, topic_offset bigint,
  by_fallback boolean, topic text, failure_type text, reason text, claimed_at timestamptz) LANGUAGE sql STABLE ROWS 1 AS $$
SELECT a.token, a.sent_at, a.owner, coalesce(a.attempts[n.place], 1), coalesce(a.deaths[n.place], 0::smallint),
  a.topic_partitions[n.place], a.topic_offsets[n.place], coalesce(a.by_fallback[n.place], false), a.topics[n.place],
  a.failure_types[n.place], a.reasons[n.place], a.claimed_at
FROM outbox_archive a CROSS JOIN LATERAL
  (SELECT CASE WHEN a.partition = of_partition THEN array_position(a.ids, of_id) END AS place) n
WHERE int8range(a.first_id, a.last_id, '[]') @> of_id AND n.place IS NOT NULL LIMIT 1 $$;

CREATE OR REPLACE VIEW outbox_unsent AS
SELECT q.partition, q.id, q.key, q.bytes, q.deaths, q.trial_deaths, q.failure_type, q.reason,
  CASE WHEN l.in_flight IS NULL THEN q.status ELSE 1::smallint END AS status,
  CASE WHEN l.in_flight IS NULL THEN q.attempts ELSE q.attempts + 1 END AS attempts,
  CASE WHEN l.in_flight IS NULL THEN q.next_attempt_at END AS next_attempt_at,
  CASE WHEN l.in_flight IS NULL THEN q.lease_owner ELSE l.claimer END AS lease_owner,
  coalesce(l.in_flight, q.lease_version) AS lease_version,
  CASE WHEN l.in_flight IS NULL THEN q.last_attempt_at ELSE l.claimed_at END AS last_attempt_at
FROM outbox q LEFT JOIN outbox_lease l
  ON l.partition = q.partition AND q.id BETWEEN l.first_id AND l.last_id AND q.id = ANY (l.open_ids);

CREATE OR REPLACE VIEW outbox_rows AS
SELECT q.id, e.event_id, q.key, e.type, q.partition,
  CASE q.status WHEN 0 THEN 'PENDING' WHEN 1 THEN 'IN_FLIGHT' WHEN 2 THEN 'FAILED' ELSE 'PARKED' END AS status,
  q.lease_owner, q.lease_version, q.attempts AS retry_count, q.next_attempt_at, q.failure_type, q.reason AS last_failure_reason,
  e.created_at, NULL::timestamptz AS sent_at, q.last_attempt_at
FROM outbox_unsent q LEFT JOIN outbox_event e ON e.id = q.id
UNION ALL
SELECT i.id, e.event_id, e.key, e.type, a.partition, 'SENT', a.owner, a.token, coalesce(i.attempts, 1), NULL, i.failure_type, i.reason,
  e.created_at, a.sent_at, a.claimed_at
FROM outbox_archive a CROSS JOIN LATERAL unnest(a.ids, a.attempts, a.failure_types, a.reasons) AS i (id, attempts, failure_type, reason)
  LEFT JOIN outbox_event e ON e.id = i.id;
