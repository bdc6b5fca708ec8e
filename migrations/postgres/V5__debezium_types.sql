-- Why: the view had Debezium's column names but not the types that Debezium documents for its outbox table: readers that expect
-- `varchar(255)` and `jsonb` had to cast. A view's column types cannot be replaced in place.
DROP VIEW outbox_debezium;
CREATE VIEW outbox_debezium AS
SELECT event_id AS id, 'order'::varchar(255) AS aggregatetype, key::varchar(255) AS aggregateid, type::varchar(255) AS type,
  convert_from(payload, 'UTF8')::jsonb AS payload
FROM outbox_event;
