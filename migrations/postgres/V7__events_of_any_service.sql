-- Why: rows were events of orders. Now a row is an event of any service: its key is any text, and it may have headers, another content type
-- than JSON, and the id of the request that wrote it. `key` is still the value by which the relay keeps the order of a key's events: for a key
-- that is a UUID (lower case, hyphens, not of version 8) it is that UUID, for every other text it is the first 16 bytes of the SHA-256 of the text
-- with 8 as the version, and `key_text` has the text. The region of an event that regions do not exchange is empty. No row is rewritten, and
-- the columns of an order's event are the same as before. An instance of an earlier version that still runs parks events of other services,
-- because it does not have their types.
ALTER TABLE outbox_event ADD COLUMN key_text text, ADD COLUMN headers jsonb, ADD COLUMN content_type text, ADD COLUMN request_id text;

-- PostgreSQL cannot change the types of a view's columns in place, so the view is dropped and created again.
DROP VIEW outbox_rows;
CREATE VIEW outbox_rows AS
SELECT q.id, e.event_id, coalesce(e.key_text, q.key::text) AS key, e.type, q.partition,
  CASE q.status WHEN 0 THEN 'PENDING' WHEN 1 THEN 'IN_FLIGHT' WHEN 2 THEN 'FAILED' ELSE 'PARKED' END AS status,
  q.lease_owner, q.lease_version, q.attempts AS retry_count, q.next_attempt_at, q.failure_type, q.reason AS last_failure_reason,
  e.created_at, NULL::timestamptz AS sent_at, q.last_attempt_at, e.topic
FROM outbox_unsent q LEFT JOIN outbox_event e ON e.id = q.id
UNION ALL
SELECT i.id, e.event_id, coalesce(e.key_text, e.key::text), e.type, a.partition, 'SENT', a.owner, a.token, coalesce(i.attempts, 1), NULL,
  i.failure_type, i.reason, e.created_at, a.sent_at, a.claimed_at, e.topic
FROM outbox_archive a CROSS JOIN LATERAL unnest(a.ids, a.attempts, a.failure_types, a.reasons) AS i (id, attempts, failure_type, reason)
  LEFT JOIN outbox_event e ON e.id = i.id;

-- Converts a payload to the type that Debezium documents: JSON is unchanged, every other content becomes a string in base64.
CREATE FUNCTION outbox_json(payload bytea) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
BEGIN
  RETURN convert_from(payload, 'UTF8')::jsonb;
EXCEPTION WHEN OTHERS THEN
  RETURN to_jsonb(encode(payload, 'base64'));
END $$;

-- The aggregate type of an order's event is `order`; that of another event is its topic without the prefix `outbox.event.` of Debezium's outbox event
-- router.
DROP VIEW outbox_debezium;
CREATE VIEW outbox_debezium AS
SELECT event_id AS id,
  (CASE WHEN region <> '' THEN 'order' ELSE regexp_replace(topic, '^outbox\.event\.', '') END)::varchar(255) AS aggregatetype,
  coalesce(key_text, key::text)::varchar(255) AS aggregateid, type::varchar(255) AS type, outbox_json(payload) AS payload
FROM outbox_event;
