-- Why: `publish` and `publish_all` failed for an argument with another collation than the default one and "C", because its comparison with a
-- column of collation "C" is ambiguous. `publish_all` failed for an event with `"headers": null`. A tracestate of more than 4096 bytes is dropped,
-- as over HTTP, because the broker could refuse its record. `x-omitted-value-bytes` is a reserved header, because a dead-letter record with a
-- forged one could not be replayed. Otherwise these functions are those of V8, V11 and V15. The functions of adopted tables check the types of
-- their columns.
CREATE FUNCTION outbox_tracestate(headers jsonb) RETURNS text LANGUAGE sql IMMUTABLE AS $$
SELECT CASE WHEN octet_length(headers ->> 'tracestate') <= 4096 THEN headers ->> 'tracestate' END $$;

CREATE OR REPLACE FUNCTION outbox_headers(headers jsonb) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  name text; value jsonb; bytes integer := 0; own jsonb;
BEGIN
  IF jsonb_typeof(headers) <> 'object' THEN
    RAISE EXCEPTION 'the headers of an event are not a JSON object' USING ERRCODE = 'invalid_parameter_value',
      HINT = 'Headers are an object of names and texts, such as {"tenant": "blue"}.';
  END IF;
  own := headers - 'traceparent' - 'tracestate' - 'x-request-id';
  FOR name, value IN SELECT * FROM jsonb_each(headers) LOOP
    IF jsonb_typeof(value) <> 'string' THEN
      RAISE EXCEPTION 'the value of the header % is not a text', quote_literal(left(name, 128)) USING ERRCODE = 'invalid_parameter_value',
        HINT = 'Headers are an object of names and texts, such as {"tenant": "blue"}.';
    END IF;
  END LOOP;
  FOR name, value IN SELECT * FROM jsonb_each(own) LOOP
    IF octet_length(name) NOT BETWEEN 1 AND 128 OR name ~ '[^!-~]' THEN
      RAISE EXCEPTION 'a header cannot be named %', quote_literal(left(name, 128)) USING ERRCODE = 'invalid_parameter_value',
        HINT = 'The name of a header has 1 to 128 visible ASCII characters.';
    ELSIF lower(name) ~ '^(ce_|kafka_)' OR lower(name) IN ('content-type', 'id', 'retry_topic-attempts', 'traceparent', 'tracestate',
        'x-attempt', 'x-failure-type', 'x-hlc', 'x-omitted-value-bytes', 'x-region', 'x-request-id', 'x-sequence', 'x-webhook') THEN
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

-- Up to PostgreSQL 16 a parallel worker cannot run a block with EXCEPTION, so the view outbox_debezium failed on a large table.
ALTER FUNCTION outbox_json(bytea) PARALLEL UNSAFE;

DO $do$
DECLARE
  own CONSTANT text := current_schema();
  statement text;
BEGIN
  FOREACH statement IN ARRAY ARRAY[
  $f$CREATE OR REPLACE FUNCTION @f@.publish(topic text, key text, type text, payload bytea, headers jsonb DEFAULT NULL,
  content_type text DEFAULT 'application/json', event_id uuid DEFAULT NULL) RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $b$
#variable_conflict use_column
DECLARE
  number bigint; of_partition integer; of_group uuid; new_id uuid; own_headers jsonb; trace text; state text; request text; woken boolean;
BEGIN
  IF $5 IS NOT NULL OR $7 IS NOT NULL OR $6 COLLATE "C" <> 'application/json' OR pg_current_xact_id_if_assigned() IS NOT NULL THEN
    IF @o@.outbox_is_legal($1 COLLATE "C", $2, $3, octet_length($4), $6) IS NOT TRUE THEN
      PERFORM @o@.outbox_refuse($1 COLLATE "C", $2, $3, octet_length($4), $6);
    END IF;
    IF $5 IS NOT NULL THEN
      own_headers := @o@.outbox_headers($5);
      request := @o@.outbox_request_id($5);
      trace := @o@.outbox_traceparent($5);
      IF trace IS NOT NULL THEN state := @o@.outbox_tracestate($5); END IF;
    END IF;
    IF $7 IS NOT NULL AND EXISTS (SELECT FROM @o@.outbox_event e WHERE e.event_id = $7) THEN RETURN $7; END IF;
    IF pg_current_xact_id_if_assigned() IS NOT NULL THEN
      woken := current_setting('posthaste.woken', true) = 'yes';
      IF woken IS NOT TRUE THEN PERFORM set_config('posthaste.woken', 'yes', true); END IF;
    END IF;
  END IF;

  -- The key's lock. It comes before the id, and assigns the number of the transaction, so that a claim never passes an id that appears later.
  UPDATE @o@.outbox_sequence s SET last = s.last + 1, wakes = woken IS NOT TRUE
    WHERE s.topic = $1 COLLATE "C" AND s.key = $2 COLLATE "C" AND $3 COLLATE "C" ~ '^[^\u0001-\u001F\u007F-\u009F]+$'
      AND octet_length($3) <= 1024 AND octet_length($4) <= 983040 AND $6 IS NOT NULL
    RETURNING s.last, s.partition, s.key_group INTO number, of_partition, of_group;
  IF number IS NULL THEN
    IF @o@.outbox_is_legal($1 COLLATE "C", $2, $3, octet_length($4), $6) IS NOT TRUE THEN
      PERFORM @o@.outbox_refuse($1 COLLATE "C", $2, $3, octet_length($4), $6);
    END IF;
    INSERT INTO @o@.outbox_sequence AS s (topic, key, last, partition, key_group, wakes)
      VALUES ($1, $2, 1, @o@.outbox_murmur2(convert_to($2, 'UTF8')) % @p@, @o@.outbox_key_group($2 COLLATE "C"), woken IS NOT TRUE)
      ON CONFLICT (topic, key) DO UPDATE SET last = s.last + 1, wakes = excluded.wakes
      RETURNING s.last, s.partition, s.key_group INTO number, of_partition, of_group;
  END IF;

  -- Both rows of the event in one statement. With the key's row in it too, a known key gains nothing, and a new key prepares two such statements.
  WITH e AS (
    INSERT INTO @o@.outbox_event (event_id, key, partition, sequence, occurred_at, hlc_millis, hlc_counter, type, topic, region, traceparent,
        tracestate, payload, key_text, headers, content_type, request_id)
      VALUES (coalesce($7, @o@.outbox_event_id()), of_group, of_partition, number, clock_timestamp(), 0, 0, $3, $1, '', trace, state, $4,
        nullif($2 COLLATE "C", of_group::text), own_headers, nullif($6 COLLATE "C", 'application/json'), request)
      ON CONFLICT (event_id) DO NOTHING RETURNING id, key, partition, event_id),
    q AS (INSERT INTO @o@.outbox (id, key, partition, bytes) SELECT id, key, partition, octet_length($4) FROM e)
  SELECT event_id INTO new_id FROM e;
  IF new_id IS NULL THEN
    -- Another transaction has published this event meanwhile. The number goes back; the lock of the key is still held.
    UPDATE @o@.outbox_sequence s SET last = s.last - 1 WHERE s.topic = $1 COLLATE "C" AND s.key = $2 COLLATE "C";
    RETURN $7;
  END IF;
  RETURN new_id;
END $b$$f$,

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
    FROM unnest($1 COLLATE "C", $2 COLLATE "C", $3 COLLATE "C", $4, $6 COLLATE "C") AS i (topic, key, type, payload, content_type)
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
    FROM (SELECT i.topic, i.key, count(*) AS events
        FROM unnest($1 COLLATE "C", $2 COLLATE "C", is_new) AS i (topic, key, is_new) WHERE i.is_new IS NOT FALSE GROUP BY 1, 2) k
      LEFT JOIN @o@.outbox_sequence o ON o.topic = k.topic AND o.key = k.key
    ORDER BY k.topic, k.key
    ON CONFLICT (topic, key) DO UPDATE SET last = s.last + excluded.last, wakes = excluded.wakes;
  IF first THEN PERFORM set_config('posthaste.woken', 'yes', true); END IF;

  WITH i AS (
      SELECT i.*, row_number() OVER w AS nth, count(*) OVER (PARTITION BY i.topic, i.key) AS events
      FROM unnest($1 COLLATE "C", $2 COLLATE "C", $3 COLLATE "C", $4, $5, own_headers, $6 COLLATE "C", new_ids, is_new)
        WITH ORDINALITY AS i (topic, key, type, payload, headers, own_headers, content_type, event_id, is_new, place)
      WHERE i.is_new IS NOT FALSE WINDOW w AS (PARTITION BY i.topic, i.key ORDER BY i.place)),
    e AS (INSERT INTO @o@.outbox_event (event_id, key, partition, sequence, occurred_at, hlc_millis, hlc_counter, type, topic, region,
        traceparent, tracestate, payload, key_text, headers, content_type, request_id)
      SELECT i.event_id, s.key_group, s.partition, s.last - i.events + i.nth, clock_timestamp(), 0, 0, i.type, i.topic, '',
        @o@.outbox_traceparent(i.headers), CASE WHEN @o@.outbox_traceparent(i.headers) IS NOT NULL THEN @o@.outbox_tracestate(i.headers) END,
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
      coalesce(array_agg(nullif(e -> 'headers', 'null') ORDER BY n), '{}'), coalesce(array_agg(e ->> 'contentType' ORDER BY n), '{}'),
      coalesce(array_agg((e ->> 'eventId')::uuid ORDER BY n), '{}'))
    FROM jsonb_array_elements($1) WITH ORDINALITY AS t (e, n));
END $b$$f$]
  LOOP
    EXECUTE (SELECT replace(replace(replace(statement, '@o@', quote_ident(own)), '@f@', quote_ident(i.functions)), '@p@', i.partitions::text)
      FROM installation i);
  END LOOP;
END $do$;

-- The columns of a table, with the SQL by which the function of an adopted table reads them. That function runs with the rights of its owner, so
-- it must not call code that the owner of the table can define, even after a change of the table. pg_typeof and format run no cast, and only a
-- superuser defines a type's output function. A domain over character, boolean or inet is cast to its base type first, because its text differs
-- from its output. has_custom_cast: the column's cast to text is a function that the owner of its type may have written.
CREATE FUNCTION outbox_columns_read(relation oid)
RETURNS TABLE (name text, type text, built_in boolean, value_expression text, text_expression text, type_has_changed text, has_custom_cast boolean)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
WITH RECURSIVE columns AS (
    SELECT a.attname AS name, a.atttypid AS type, a.atttypid AS base, format('NEW."%s"', replace(a.attname, '"', '""')) AS value_expression
    FROM pg_attribute a WHERE a.attrelid = relation AND a.attnum > 0 AND NOT a.attisdropped
  UNION ALL
    SELECT columns.name, columns.type, d.typbasetype, columns.value_expression
    FROM columns JOIN pg_type d ON d.oid = columns.base AND d.typtype = 'd'),
  resolved AS (
    SELECT columns.*, format_type(columns.type, NULL) AS shown, b.typname, b.typnamespace = 'pg_catalog'::regnamespace AS known,
      EXISTS (SELECT FROM pg_cast p WHERE p.castsource = b.oid AND p.casttarget = 'text'::regtype AND p.castmethod = 'f') AS has_function
    FROM columns JOIN pg_type b ON b.oid = columns.base AND b.typtype <> 'd')
SELECT resolved.name, shown, known AND resolved.type = base, resolved.value_expression,
  CASE WHEN known AND resolved.type = base THEN resolved.value_expression || '::text'
    ELSE format('CASE WHEN NOT (%1$s IS NULL) THEN format(''%%s'', %1$s)%2$s END', resolved.value_expression,
      CASE WHEN known AND has_function THEN format('::pg_catalog.%I::text', typname) END) END,
  CASE WHEN known AND resolved.type = base THEN format('pg_typeof(%s) <> %L::regtype', resolved.value_expression, shown)
    ELSE format('pg_typeof(%s)::text <> %L', resolved.value_expression, shown) END,
  NOT known AND has_function
FROM resolved $$;

-- The adopted tables with a function that does not begin with a check of the types. It finds them by the function, because the owner of the table
-- can rename the trigger.
CREATE FUNCTION outbox_tables_without_type_check() RETURNS TABLE (relation oid, function regprocedure, owner oid, body text)
LANGUAGE sql STABLE AS $$
SELECT DISTINCT t.tgrelid, p.oid::regprocedure, p.proowner, p.prosrc FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid
WHERE t.tgparentid = 0 AND p.prosecdef AND p.proname LIKE 'outbox\_adopted\_%' AND p.prosrc NOT LIKE ' BEGIN IF %'
  AND p.pronamespace = (SELECT relnamespace FROM pg_class WHERE oid = to_regclass('installation')) $$;

-- The owner of an adopted table can give a column a type with a user-defined cast to text, which ran with the rights of the function's owner. This
-- block rewrites each function as `posthaste adopt` now creates it: it checks the types of its columns and then reads them as above. The block
-- leaves a function unchanged if the new form could change a text, if the function belongs to another role or to several tables, or if it reads a
-- column that the table does not have now. `migrate up` and `doctor` name the tables of these functions.
DO $do$
DECLARE
  adopted record; read_column record; new_body text; any_type_has_changed text; is_left_unchanged boolean;
BEGIN
  FOR adopted IN SELECT * FROM outbox_tables_without_type_check() LOOP
    new_body := adopted.body;
    any_type_has_changed := NULL;
    is_left_unchanged := NOT pg_has_role(current_user, adopted.owner, 'USAGE') OR adopted.body NOT LIKE ' BEGIN PERFORM %'
      OR adopted.body ~* 'NEW\.[^"]'
      OR EXISTS (SELECT FROM regexp_matches(adopted.body, 'NEW\."((?:[^"]|"")*)"', 'g') AS m
        WHERE NOT EXISTS (SELECT FROM outbox_columns_read(adopted.relation) r WHERE r.value_expression = 'NEW."' || m[1] || '"'))
      OR (SELECT count(*) > 1 FROM outbox_tables_without_type_check() o WHERE o.function = adopted.function);
    FOR read_column IN SELECT * FROM outbox_columns_read(adopted.relation) r
        WHERE position(r.value_expression IN adopted.body) > 0 ORDER BY r.name COLLATE "C" LOOP
      new_body := replace(new_body, read_column.value_expression || '::text', read_column.text_expression);
      any_type_has_changed := concat_ws(' OR ', any_type_has_changed, read_column.type_has_changed);
      is_left_unchanged := is_left_unchanged OR read_column.has_custom_cast OR NOT read_column.built_in
        AND position(read_column.value_expression IN replace(adopted.body, read_column.value_expression || '::text', '')) > 0;
    END LOOP;
    IF is_left_unchanged OR any_type_has_changed IS NULL THEN
      RAISE WARNING 'the function of the adopted table % does not check the types of its columns', adopted.relation::regclass
        USING HINT = 'Run `posthaste adopt` for this table again: see docs/publish/adopt.md.';
    ELSE
      EXECUTE format('CREATE OR REPLACE FUNCTION %s RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS %L',
        adopted.function, replace(new_body, ' BEGIN PERFORM ', ' BEGIN IF ' || any_type_has_changed
          || $$ THEN RAISE EXCEPTION 'the type of a column of % has changed', TG_RELID::regclass USING ERRCODE = 'datatype_mismatch', $$
          || $$HINT = 'Run `posthaste adopt` for this table again.'; END IF; PERFORM $$));
    END IF;
  END LOOP;
END $do$;
