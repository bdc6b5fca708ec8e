-- Why: the view had the column names of Debezium's outbox table but not the types that Debezium documents (`varchar(255)`, `jsonb`), so programs
-- that expect these types had to cast. PostgreSQL cannot change the types of a view's columns in place, so the view is dropped and created again.
DROP VIEW outbox_debezium;
CREATE VIEW outbox_debezium AS
SELECT event_id AS id, 'order'::varchar(255) AS aggregatetype, key::varchar(255) AS aggregateid, type::varchar(255) AS type,
  convert_from(payload, 'UTF8')::jsonb AS payload
FROM outbox_event;
