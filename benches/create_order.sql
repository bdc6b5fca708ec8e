-- The baseline of `posthaste bench create`, for pgbench: an order, its event and its outbox row in one transaction of their own.
-- The statement is the store's own for a single order (src/adapters/postgres/orders/group_commit.rs), on the same schema with the same indexes; ids are
-- version 7 as the service's are, values are of the same size. One statement is one transaction: nothing here waits for a second answer.
\set client random(0, 63)
WITH n AS MATERIALIZED (
  SELECT (lpad(to_hex(floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint), 12, '0') || '7'
      || substr(translate(gen_random_uuid()::text, '-', ''), 14))::uuid AS id,
    (lpad(to_hex(floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint), 12, '0') || '7'
      || substr(translate(gen_random_uuid()::text, '-', ''), 14))::uuid AS event_id,
    clock_timestamp() AS at, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS millis),
o AS (
  INSERT INTO orders (id, owner, status, version, created_at, updated_at, items, total, region, hlc_millis, hlc_counter)
  SELECT id, 'bench-' || :client::text, 'PENDING', 0, at, at,
    '[["Tea of client 12", 2, "2.50"], ["A cup, blue, with a saucer", 1, "11.90"]]'::json, 16.90, 'local', millis, 0
  FROM n ON CONFLICT (id) DO NOTHING RETURNING id),
e AS (
  INSERT INTO outbox_event (event_id, key, partition, sequence, occurred_at, hlc_millis, hlc_counter, type, topic, region, payload)
  SELECT n.event_id, o.id, :client::int, 1, n.at, n.millis, 0, 'ORDER_CREATED', 'order.events', 'local',
    convert_to('{"schemaVersion": 2,"eventId":"' || n.event_id || '","eventType":"ORDER_CREATED","orderId":"' || o.id
      || '","occurredAt":"' || n.at || '","status":"PENDING","version": 0,"total":"16.90","items":[{"productName":"Tea of client 12",'
      || '"quantity": 2,"price":"2.50"},{"productName":"A cup, blue, with a saucer","quantity": 1,"price":"11.90"}]}', 'UTF8')
  FROM n JOIN o ON o.id = n.id RETURNING id, key, partition, octet_length(payload) AS bytes)
INSERT INTO outbox (id, key, partition, bytes) SELECT id, key, partition, bytes FROM e;
