-- Why: a service in any language publishes events in its own transaction: `posthaste.publish(…)` inserts the content and the outbox row of an event,
-- as a commit of the order service does, and `posthaste.publish_all(…)` those of many events. docs/publish.md describes both.
-- The functions are SECURITY DEFINER with a fixed search path: a caller needs the role `posthaste_publisher` and no right on a table.

-- `outbox_sequence`: a row is the last number of a key in a topic, which records have in the header `x-sequence`. A transaction that publishes
-- increments the number and so locks the row until it ends: transactions with the same key run one after the other, event ids have the order of
-- the commits, and a rollback leaves no gap. The partition and the group of a key are computed once, for its first event. `wakes`: this is the
-- first such row of its transaction, whose trigger wakes the relay at the commit.
CREATE TABLE outbox_sequence (
  topic text COLLATE "C" NOT NULL, key text COLLATE "C" NOT NULL, last bigint NOT NULL, partition integer NOT NULL, key_group uuid NOT NULL,
  wakes boolean NOT NULL, PRIMARY KEY (topic, key)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- The time of the last wake-up in milliseconds. It is a sequence, because all sessions see a new value before the commit and setting it locks no row.
CREATE SEQUENCE outbox_wake_time MINVALUE 0 START 0;

-- `functions`: the schema of `publish` and `publish_all` of this installation.
ALTER TABLE installation ADD COLUMN functions text;

-- MurmurHash2 as Kafka's Java clients compute it, without the sign.
CREATE FUNCTION outbox_murmur2(data bytea) RETURNS bigint LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
  m CONSTANT bigint := 1540483477;
  mask CONSTANT bigint := 4294967295;
  bytes CONSTANT integer := octet_length(data);
  rest CONSTANT integer := octet_length(data) & 3;
  hash bigint := 2538058380 # bytes;
  k bigint;
BEGIN
  FOR i IN 0..bytes - 4 BY 4 LOOP
    k := ((get_byte(data, i) + (get_byte(data, i + 1) << 8) + (get_byte(data, i + 2) << 16) + (get_byte(data, i + 3)::bigint << 24)) * m) & mask;
    hash := ((hash * m) & mask) # (((k # (k >> 24)) * m) & mask);
  END LOOP;
  IF rest > 0 THEN
    IF rest = 3 THEN hash := hash # (get_byte(data, bytes - 1) << 16); END IF;
    IF rest >= 2 THEN hash := hash # (get_byte(data, bytes - rest + 1) << 8); END IF;
    hash := ((hash # get_byte(data, bytes - rest)) * m) & mask;
  END IF;
  hash := ((hash # (hash >> 13)) * m) & mask;
  RETURN (hash # (hash >> 15)) & 2147483647;
END $$;

-- The group of a key: `outbox_event.key`, which V7 describes.
CREATE FUNCTION outbox_key_group(key text) RETURNS uuid LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE digest bytea;
BEGIN
  IF key ~ '^[0-9a-f]{8}-[0-9a-f]{4}-[0-79a-f][0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}$' THEN RETURN key::uuid; END IF;
  digest := substring(sha256(convert_to(key, 'UTF8')) FROM 1 FOR 16);
  RETURN encode(set_byte(digest, 6, (get_byte(digest, 6) & 15) | 128), 'hex')::uuid;
END $$;

-- A UUID of version 7. Such ids grow with time, so that new entries of their index are at its end.
CREATE FUNCTION outbox_event_id() RETURNS uuid LANGUAGE sql VOLATILE PARALLEL SAFE AS $$
SELECT encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid())
  PLACING substring(int8send(floor(date_part('epoch', clock_timestamp()) * 1000)::bigint) FROM 3) FROM 1 FOR 6), 52, 1), 53, 1), 'hex')::uuid $$;

-- Whether the relay can send such an event; a payload has at most 960 KiB. `publish` raises an error in the transaction of its caller for an event
-- that the relay would park.
CREATE FUNCTION outbox_is_legal(topic text, key text, type text, bytes integer, content_type text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
SELECT octet_length(topic) BETWEEN 1 AND 249 AND topic !~ '[^A-Za-z0-9._-]' AND topic <> '.' AND topic <> '..'
  AND octet_length(key) BETWEEN 1 AND 1024 AND key !~ '[\u0001-\u001F\u007F-\u009F]'
  AND octet_length(type) BETWEEN 1 AND 1024 AND type !~ '[\u0001-\u001F\u007F-\u009F]'
  AND (content_type = 'application/json' OR octet_length(content_type) BETWEEN 1 AND 256 AND content_type !~ '[^ -~]') AND bytes <= 983040 $$;

-- Raises the error that describes why an event is not legal.
CREATE FUNCTION outbox_refuse(topic text, key text, type text, bytes integer, content_type text) RETURNS void
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  IF topic IS NULL OR key IS NULL OR type IS NULL OR bytes IS NULL OR content_type IS NULL THEN
    RAISE EXCEPTION 'an event needs a topic, a key, a type, a payload and a content type: one of them is NULL'
      USING ERRCODE = 'null_value_not_allowed';
  ELSIF octet_length(topic) NOT BETWEEN 1 AND 249 OR topic ~ '[^A-Za-z0-9._-]' OR topic IN ('.', '..') THEN
    RAISE EXCEPTION '% is no topic name', quote_literal(left(topic, 300)) USING ERRCODE = 'invalid_parameter_value',
      HINT = 'A topic has 1 to 249 letters, digits, dots, underscores and hyphens.';
  ELSIF octet_length(key) NOT BETWEEN 1 AND 1024 OR key ~ '[\u0001-\u001F\u007F-\u009F]' THEN
    RAISE EXCEPTION 'the key of an event cannot be % (% bytes)', quote_literal(left(key, 64)), octet_length(key)
      USING ERRCODE = 'invalid_parameter_value', HINT = 'A key has 1 to 1024 bytes and no control characters.';
  ELSIF octet_length(type) NOT BETWEEN 1 AND 1024 OR type ~ '[\u0001-\u001F\u007F-\u009F]' THEN
    RAISE EXCEPTION 'the type of an event cannot be % (% bytes)', quote_literal(left(type, 64)), octet_length(type)
      USING ERRCODE = 'invalid_parameter_value', HINT = 'A type has 1 to 1024 bytes and no control characters.';
  ELSIF octet_length(content_type) NOT BETWEEN 1 AND 256 OR content_type ~ '[^ -~]' THEN
    RAISE EXCEPTION 'the content type of an event cannot be %', quote_literal(left(content_type, 64))
      USING ERRCODE = 'invalid_parameter_value', HINT = 'A content type has 1 to 256 printable ASCII characters.';
  ELSE
    RAISE EXCEPTION 'the payload of an event has % bytes, the limit is 983040', bytes USING ERRCODE = 'program_limit_exceeded',
      HINT = 'Publish a reference to the content.';
  END IF;
END $$;

-- The headers that the relay copies to the record: those of the caller without the trace context and the request id, which have columns of their own.
CREATE FUNCTION outbox_headers(headers jsonb) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  name text; value jsonb; bytes integer := 0; own jsonb := headers - 'traceparent' - 'tracestate' - 'x-request-id';
BEGIN
  IF jsonb_typeof(headers) <> 'object' THEN
    RAISE EXCEPTION 'the headers of an event are no JSON object' USING ERRCODE = 'invalid_parameter_value',
      HINT = 'Headers are an object of names and texts, such as {"tenant": "blue"}.';
  END IF;
  FOR name, value IN SELECT * FROM jsonb_each(headers) LOOP
    IF jsonb_typeof(value) <> 'string' THEN
      RAISE EXCEPTION 'the value of the header % is no text', quote_literal(left(name, 128)) USING ERRCODE = 'invalid_parameter_value',
        HINT = 'Headers are an object of names and texts, such as {"tenant": "blue"}.';
    END IF;
  END LOOP;
  FOR name, value IN SELECT * FROM jsonb_each(own) LOOP
    IF octet_length(name) NOT BETWEEN 1 AND 128 OR name ~ '[^!-~]' THEN
      RAISE EXCEPTION '% is no header name', quote_literal(left(name, 128)) USING ERRCODE = 'invalid_parameter_value',
        HINT = 'The name of a header has 1 to 128 visible ASCII characters.';
    ELSIF lower(name) ~ '^(ce_|kafka_)' OR lower(name) IN ('content-type', 'id', 'retry_topic-attempts', 'traceparent', 'tracestate',
        'x-attempt', 'x-failure-type', 'x-hlc', 'x-region', 'x-request-id', 'x-sequence') THEN
      RAISE EXCEPTION 'the header % is written by the relay', quote_literal(name) USING ERRCODE = 'invalid_parameter_value',
        HINT = 'traceparent, tracestate and x-request-id may be given in lower case; the content type is an argument of its own.';
    END IF;
    bytes := bytes + octet_length(name) + octet_length(value #>> '{}');
  END LOOP;
  IF bytes > 16384 OR (SELECT count(*) FROM jsonb_object_keys(own)) > 64 THEN
    RAISE EXCEPTION 'the headers of an event are too large' USING ERRCODE = 'program_limit_exceeded',
      HINT = 'An event has at most 64 headers of its own, with 16384 bytes in names and values.';
  END IF;
  RETURN nullif(own, '{}');
END $$;

-- A trace context that is not well formed is dropped together with its tracestate, and so is a malformed request id.
CREATE FUNCTION outbox_traceparent(headers jsonb) RETURNS text LANGUAGE sql IMMUTABLE AS $$
SELECT CASE WHEN headers ->> 'traceparent' ~ '^(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$'
  THEN headers ->> 'traceparent' END $$;
CREATE FUNCTION outbox_request_id(headers jsonb) RETURNS text LANGUAGE sql IMMUTABLE AS $$
SELECT CASE WHEN headers ->> 'x-request-id' !~ '[^A-Za-z0-9._-]'
  AND octet_length(headers ->> 'x-request-id') BETWEEN 1 AND 128 THEN headers ->> 'x-request-id' END $$;

-- The functions are in the schema `posthaste`. If another installation of this database uses that schema, they are in the schema of the tables.
DO $do$
DECLARE
  own CONSTANT text := current_schema();
  owner_of_posthaste CONSTANT text := substring(obj_description(to_regnamespace('posthaste'), 'pg_namespace') FROM '^posthaste installation: (.*)$');
  functions text := 'posthaste';
  statement text;
BEGIN
  IF to_regnamespace('posthaste') IS NULL THEN
    BEGIN
      CREATE SCHEMA posthaste;
      EXECUTE format('COMMENT ON SCHEMA posthaste IS %L', 'posthaste installation: ' || own);
    EXCEPTION WHEN insufficient_privilege THEN
      RAISE WARNING 'this role may not create the schema posthaste: the functions are in the schema %', own;
      functions := own;
    END;
  ELSIF own <> 'posthaste' AND owner_of_posthaste IS DISTINCT FROM own
      AND (owner_of_posthaste IS NULL OR to_regclass(format('%I.installation', owner_of_posthaste)) IS NOT NULL
        OR NOT pg_has_role((SELECT nspowner FROM pg_namespace WHERE nspname = 'posthaste'), 'USAGE')) THEN
    functions := own;
  ELSIF own <> 'posthaste' THEN
    EXECUTE format('COMMENT ON SCHEMA posthaste IS %L', 'posthaste installation: ' || own);
  END IF;
  EXECUTE 'UPDATE installation SET functions = $1' USING functions;

  FOREACH statement IN ARRAY ARRAY[
  -- Wakes the relay at the commit: at most once in 25 ms, because a commit with a notification takes a lock of the whole server. The relay
  -- looks again 25 ms after a wake-up, so that it covers the commits that sent none. `posthaste.wake_ups = off` sends none at all.
  $f$CREATE FUNCTION @o@.outbox_wake() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $b$
DECLARE
  now_ms CONSTANT bigint := floor(date_part('epoch', clock_timestamp()) * 1000);
  last_ms bigint;
BEGIN
  SELECT last_value INTO last_ms FROM @o@.outbox_wake_time;
  IF now_ms BETWEEN last_ms AND last_ms + 24 OR current_setting('posthaste.wake_ups', true) = 'off' THEN RETURN NULL; END IF;
  PERFORM setval('@o@.outbox_wake_time', now_ms);
  PERFORM pg_notify('posthaste_' || replace(id::text, '-', '_'), 'sql *') FROM @o@.installation;
  RETURN NULL;
END $b$$f$,
  $f$CREATE CONSTRAINT TRIGGER outbox_sequence_wakes AFTER INSERT OR UPDATE ON @o@.outbox_sequence DEFERRABLE INITIALLY DEFERRED
  FOR EACH ROW WHEN (NEW.wakes) EXECUTE FUNCTION @o@.outbox_wake()$f$,

  $f$CREATE OR REPLACE FUNCTION @f@.publish(topic text, key text, type text, payload bytea, headers jsonb DEFAULT NULL,
  content_type text DEFAULT 'application/json', event_id uuid DEFAULT NULL) RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $b$
#variable_conflict use_column
DECLARE
  number bigint; of_partition integer; of_group uuid; row_id bigint; own_headers jsonb; trace text; request text;
  new_id uuid := $7;
  first CONSTANT boolean := current_setting('posthaste.woken', true) IS DISTINCT FROM 'yes';
BEGIN
  IF @o@.outbox_is_legal($1, $2, $3, octet_length($4), $6) IS NOT TRUE THEN
    PERFORM @o@.outbox_refuse($1, $2, $3, octet_length($4), $6);
  END IF;
  IF $5 IS NOT NULL THEN
    own_headers := @o@.outbox_headers($5);
    trace := @o@.outbox_traceparent($5);
    request := @o@.outbox_request_id($5);
  END IF;
  IF $7 IS NULL THEN
    new_id := @o@.outbox_event_id();
  ELSIF EXISTS (SELECT FROM @o@.outbox_event e WHERE e.event_id = $7) THEN
    RETURN $7;
  END IF;

  -- The key's lock. It comes before the id, and assigns the number of the transaction, so that a claim never passes an id that appears later.
  UPDATE @o@.outbox_sequence s SET last = s.last + 1, wakes = first WHERE s.topic = $1 AND s.key = $2
    RETURNING s.last, s.partition, s.key_group INTO number, of_partition, of_group;
  IF NOT FOUND THEN
    INSERT INTO @o@.outbox_sequence AS s (topic, key, last, partition, key_group, wakes)
      SELECT $1, $2, 1, @o@.outbox_murmur2(convert_to($2, 'UTF8')) % i.partitions, @o@.outbox_key_group($2), first FROM @o@.installation i
      ON CONFLICT (topic, key) DO UPDATE SET last = s.last + 1, wakes = first
      RETURNING s.last, s.partition, s.key_group INTO number, of_partition, of_group;
  END IF;
  IF first THEN PERFORM set_config('posthaste.woken', 'yes', true); END IF;

  INSERT INTO @o@.outbox_event (event_id, key, partition, sequence, occurred_at, hlc_millis, hlc_counter, type, topic, region, traceparent,
      tracestate, payload, key_text, headers, content_type, request_id)
    VALUES (new_id, of_group, of_partition, number, clock_timestamp(), 0, 0, $3, $1, '', trace, CASE WHEN trace IS NOT NULL THEN
      $5 ->> 'tracestate' END, $4, nullif($2, of_group::text), own_headers, nullif($6, 'application/json'), request)
    ON CONFLICT (event_id) DO NOTHING RETURNING id INTO row_id;
  IF row_id IS NULL THEN
    -- Another transaction has published this event meanwhile. The number goes back; the lock of the key is still held.
    UPDATE @o@.outbox_sequence s SET last = s.last - 1 WHERE s.topic = $1 AND s.key = $2;
    RETURN new_id;
  END IF;
  INSERT INTO @o@.outbox (id, key, partition, bytes) VALUES (row_id, of_group, of_partition, octet_length($4));
  RETURN new_id;
END $b$$f$,

  $f$CREATE OR REPLACE FUNCTION @f@.publish(topic text, key text, type text, payload jsonb, headers jsonb DEFAULT NULL,
  content_type text DEFAULT 'application/json', event_id uuid DEFAULT NULL) RETURNS uuid LANGUAGE sql AS $b$
SELECT @f@.publish($1, $2, $3, convert_to($4::text, 'UTF8'), $5, $6, $7) $b$$f$,
  $f$CREATE OR REPLACE FUNCTION @f@.publish(topic text, key text, type text, payload text, headers jsonb DEFAULT NULL,
  content_type text DEFAULT 'application/json', event_id uuid DEFAULT NULL) RETURNS uuid LANGUAGE sql AS $b$
SELECT @f@.publish($1, $2, $3, convert_to($4, 'UTF8'), $5, $6, $7) $b$$f$,

  -- Many events: the keys are locked in one order, whatever the order of the events, so that two calls do not deadlock.
  $f$CREATE OR REPLACE FUNCTION @f@.publish_all(topics text[], keys text[], types text[], payloads bytea[], headers jsonb[] DEFAULT NULL,
  content_types text[] DEFAULT NULL, event_ids uuid[] DEFAULT NULL) RETURNS uuid[]
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $b$
#variable_conflict use_column
DECLARE
  partitions_of CONSTANT integer := (SELECT partitions FROM @o@.installation);
  refused record; new_ids uuid[]; is_new boolean[]; own_headers jsonb[]; expected bigint; written bigint;
  events CONSTANT integer := coalesce(cardinality($2), 0);
  first CONSTANT boolean := current_setting('posthaste.woken', true) IS DISTINCT FROM 'yes';
BEGIN
  IF cardinality($1) IS DISTINCT FROM events OR cardinality($3) IS DISTINCT FROM events OR cardinality($4) IS DISTINCT FROM events
      OR coalesce(cardinality($5), events) <> events OR coalesce(cardinality($6), events) <> events
      OR coalesce(cardinality($7), events) <> events THEN
    RAISE EXCEPTION 'the arrays of a batch have different lengths' USING ERRCODE = 'array_subscript_error',
      HINT = 'Each array has one element for each event; headers, content_types and event_ids may be NULL as a whole.';
  END IF;
  IF events = 0 THEN RETURN '{}'; END IF;
  SELECT i.topic, i.key, i.type, octet_length(i.payload) AS bytes, coalesce(i.content_type, 'application/json') AS content_type INTO refused
    FROM unnest($1, $2, $3, $4, $6) AS i (topic, key, type, payload, content_type)
    WHERE @o@.outbox_is_legal(i.topic, i.key, i.type, octet_length(i.payload), coalesce(i.content_type, 'application/json')) IS NOT TRUE
    LIMIT 1;
  IF FOUND THEN
    PERFORM @o@.outbox_refuse(refused.topic, refused.key, refused.type, refused.bytes, refused.content_type);
  END IF;
  IF $5 IS NOT NULL THEN
    SELECT array_agg(CASE WHEN i.headers IS NOT NULL THEN @o@.outbox_headers(i.headers) END ORDER BY i.place) INTO own_headers
      FROM unnest($5) WITH ORDINALITY AS i (headers, place);
  END IF;
  IF $7 IS NULL THEN
    SELECT array_agg(@o@.outbox_event_id()) INTO new_ids FROM generate_series(1, events);
    expected := events;
  ELSE
    SELECT array_agg(coalesce(i.event_id, @o@.outbox_event_id()) ORDER BY i.place),
        array_agg(i.event_id IS NULL OR i.nth = 1 AND NOT EXISTS (SELECT FROM @o@.outbox_event e WHERE e.event_id = i.event_id) ORDER BY i.place)
      INTO new_ids, is_new
      FROM (SELECT u.*, row_number() OVER (PARTITION BY u.event_id ORDER BY u.place) AS nth
        FROM unnest($7) WITH ORDINALITY AS u (event_id, place)) i;
    SELECT count(*) INTO expected FROM unnest(is_new) n WHERE n;
    IF expected = 0 THEN RETURN new_ids; END IF;
  END IF;

  INSERT INTO @o@.outbox_sequence AS s (topic, key, last, partition, key_group, wakes)
    SELECT k.topic, k.key, k.events, coalesce(o.partition, @o@.outbox_murmur2(convert_to(k.key, 'UTF8')) % partitions_of),
      coalesce(o.key_group, @o@.outbox_key_group(k.key)), first AND row_number() OVER (ORDER BY k.topic, k.key) = 1
    FROM (SELECT i.topic COLLATE "C" AS topic, i.key COLLATE "C" AS key, count(*) AS events
        FROM unnest($1, $2, is_new) AS i (topic, key, is_new) WHERE i.is_new IS NOT FALSE GROUP BY 1, 2) k
      LEFT JOIN @o@.outbox_sequence o ON o.topic = k.topic AND o.key = k.key
    ORDER BY k.topic, k.key
    ON CONFLICT (topic, key) DO UPDATE SET last = s.last + excluded.last, wakes = excluded.wakes;
  IF first THEN PERFORM set_config('posthaste.woken', 'yes', true); END IF;

  WITH i AS (
      SELECT i.*, row_number() OVER w AS nth, count(*) OVER (PARTITION BY i.topic, i.key) AS events
      FROM unnest($1, $2, $3, $4, $5, own_headers, $6, new_ids, is_new) WITH ORDINALITY
        AS i (topic, key, type, payload, headers, own_headers, content_type, event_id, is_new, place)
      WHERE i.is_new IS NOT FALSE WINDOW w AS (PARTITION BY i.topic, i.key ORDER BY i.place)),
    e AS (INSERT INTO @o@.outbox_event (event_id, key, partition, sequence, occurred_at, hlc_millis, hlc_counter, type, topic, region,
        traceparent, tracestate, payload, key_text, headers, content_type, request_id)
      SELECT i.event_id, s.key_group, s.partition, s.last - i.events + i.nth, clock_timestamp(), 0, 0, i.type, i.topic, '',
        @o@.outbox_traceparent(i.headers), CASE WHEN @o@.outbox_traceparent(i.headers) IS NOT NULL THEN i.headers ->> 'tracestate' END,
        i.payload, nullif(i.key, s.key_group::text), i.own_headers, nullif(i.content_type, 'application/json'),
        @o@.outbox_request_id(i.headers)
      FROM i JOIN @o@.outbox_sequence s ON s.topic = i.topic AND s.key = i.key ORDER BY i.place
      ON CONFLICT (event_id) DO NOTHING RETURNING id, key, partition, octet_length(payload) AS bytes),
    q AS (INSERT INTO @o@.outbox (id, key, partition, bytes) SELECT id, key, partition, bytes FROM e RETURNING id)
  SELECT count(*) INTO written FROM q;
  IF written <> expected THEN
    RAISE EXCEPTION 'another transaction has published an event of this batch meanwhile' USING ERRCODE = 'serialization_failure',
      HINT = 'Repeat the transaction: the event is found then.';
  END IF;
  RETURN new_ids;
END $b$$f$,

  $f$CREATE OR REPLACE FUNCTION @f@.publish_all(events jsonb) RETURNS uuid[] LANGUAGE plpgsql AS $b$
BEGIN
  IF jsonb_typeof($1) IS DISTINCT FROM 'array' THEN
    RAISE EXCEPTION 'a batch is a JSON array of events' USING ERRCODE = 'invalid_parameter_value',
      HINT = 'Each event is {"topic", "key", "type", "payload"} or "payloadBase64", and may have "headers", "contentType", "eventId".';
  END IF;
  RETURN (SELECT @f@.publish_all(coalesce(array_agg(e ->> 'topic' ORDER BY n), '{}'), coalesce(array_agg(e ->> 'key' ORDER BY n), '{}'),
      coalesce(array_agg(e ->> 'type' ORDER BY n), '{}'),
      coalesce(array_agg(CASE WHEN e ? 'payloadBase64' THEN decode(e ->> 'payloadBase64', 'base64')
        ELSE convert_to((e -> 'payload')::text, 'UTF8') END ORDER BY n), '{}'),
      coalesce(array_agg(e -> 'headers' ORDER BY n), '{}'), coalesce(array_agg(e ->> 'contentType' ORDER BY n), '{}'),
      coalesce(array_agg((e ->> 'eventId')::uuid ORDER BY n), '{}'))
    FROM jsonb_array_elements($1) WITH ORDINALITY AS t (e, n));
END $b$$f$]
  LOOP
    EXECUTE replace(replace(statement, '@o@', quote_ident(own)), '@f@', quote_ident(functions));
  END LOOP;

  BEGIN
    IF to_regrole('posthaste_publisher') IS NULL THEN CREATE ROLE posthaste_publisher NOLOGIN; END IF;
  EXCEPTION
    WHEN duplicate_object OR unique_violation THEN NULL;
    WHEN insufficient_privilege THEN
      RAISE WARNING 'this role may not create the role posthaste_publisher'
        USING HINT = 'Create it, and grant it USAGE on the schema ' || functions || ' and EXECUTE on its functions publish and publish_all.';
  END;
  FOR statement IN SELECT p.oid::regprocedure::text FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
      WHERE n.nspname = functions AND p.proname IN ('publish', 'publish_all') LOOP
    EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', statement);
    IF to_regrole('posthaste_publisher') IS NOT NULL THEN
      EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO posthaste_publisher', statement);
    END IF;
  END LOOP;
  IF to_regrole('posthaste_publisher') IS NOT NULL THEN
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO posthaste_publisher', functions);
  END IF;
END $do$;
