-- A customer moves: the table and the event change together, or neither does.
BEGIN;
CREATE TABLE IF NOT EXISTS customer (id text PRIMARY KEY, street text NOT NULL);
INSERT INTO customer VALUES ('psql-1', 'Main Street 12') ON CONFLICT (id) DO UPDATE SET street = excluded.street;
SELECT posthaste.publish(
  topic => 'customers', key => 'psql-1', type => 'CustomerMoved',
  payload => jsonb_build_object('customer', 'psql-1', 'street', 'Main Street 12'), headers => '{"tenant": "blue"}') AS event_id;
COMMIT;

-- Many events in one call: one row of the query is one event.
SELECT cardinality(posthaste.publish_all(jsonb_agg(jsonb_build_object(
  'topic', 'customers', 'key', 'psql-' || n, 'type', 'CustomerGreeted', 'payload', jsonb_build_object('customer', n))))) AS events
FROM generate_series(1, 3) n;
