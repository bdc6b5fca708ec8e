-- Why: V13 has created the index that this function uses for wide batches. This is a migration of its own, because it waits for every reader of the
-- archive, a backup for instance, before it drops an index, and a retry should not create the new index again.
CREATE OR REPLACE FUNCTION outbox_sent(of_partition integer, of_id bigint) RETURNS TABLE (
  token bigint, sent_at timestamptz, owner text, attempts integer, deaths smallint, topic_partition integer, topic_offset bigint,
  by_fallback boolean, topic text, failure_type text, reason text, claimed_at timestamptz) LANGUAGE sql STABLE ROWS 1 AS $$
SELECT a.token, a.sent_at, a.owner, coalesce(a.attempts[n.place], 1), coalesce(a.deaths[n.place], 0::smallint),
  a.topic_partitions[n.place], a.topic_offsets[n.place], coalesce(a.by_fallback[n.place], false), a.topics[n.place],
  a.failure_types[n.place], a.reasons[n.place], a.claimed_at
FROM (SELECT * FROM outbox_archive WHERE first_id > of_id - 1024 AND first_id <= of_id AND last_id >= of_id AND last_id - first_id < 1024
      UNION ALL
      SELECT * FROM outbox_archive WHERE int8range(first_id, last_id, '[]') @> of_id AND last_id - first_id >= 1024) a
  CROSS JOIN LATERAL (SELECT CASE WHEN a.partition = of_partition THEN array_position(a.ids, of_id) END AS place) n
WHERE n.place IS NOT NULL LIMIT 1 $$;
DROP INDEX outbox_archive_by_span;
