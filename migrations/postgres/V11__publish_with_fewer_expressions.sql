-- Why: with 64 connections on few processors, the processors limit `publish`, and most of what it adds to the insertion of its three rows is
-- preparation: PL/pgSQL initialises each expression once in a transaction, and the executor each statement and table at each execution. Both take
-- longer the more function and operator calls an expression has, even if its evaluation is cheap. These functions do what those of V8 do, with
-- fewer expressions, statements and calls. Signatures, rights, errors and rows are the same; a transaction that is open during the migration
-- uses the new functions afterwards.

-- One loop reads the 32-bit words and the last bytes, from the data with three zero bytes appended. It reduces products to 32 bits once for each
-- word, because a product of two numbers below 2^32 and 2^31 fits a bigint.
CREATE OR REPLACE FUNCTION outbox_murmur2(data bytea) RETURNS bigint LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
  bytes CONSTANT integer := octet_length(data);
  padded CONSTANT bytea := data || '\x000000';
  hash bigint := 2538058380 # bytes;
  word bigint;
BEGIN
  FOR i IN 0..bytes - 1 BY 4 LOOP
    word := get_byte(padded, i) + get_byte(padded, i + 1) * 256 + get_byte(padded, i + 2) * 65536 + (get_byte(padded, i + 3) << 24);
    IF i + 4 > bytes THEN
      hash := ((hash # word) * 1540483477) & 4294967295;
    ELSE
      word := (word * 1540483477) & 4294967295;
      hash := ((hash * 1540483477) # ((word # (word >> 24)) * 1540483477)) & 4294967295;
    END IF;
  END LOOP;
  hash := ((hash # (hash >> 13)) * 1540483477) & 4294967295;
  RETURN (hash # (hash >> 15)) & 2147483647;
END $$;

-- The planner can inline this function, because it is one expression, is not STRICT, and is STABLE as `convert_to` is. The 13th hexadecimal digit
-- is the version of a UUID.
CREATE OR REPLACE FUNCTION outbox_key_group(key text) RETURNS uuid LANGUAGE sql STABLE PARALLEL SAFE AS $$
SELECT CASE WHEN key ~ '^[0-9a-f]{8}-[0-9a-f]{4}-[0-79a-f][0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}$' THEN key
  ELSE overlay(left(encode(sha256(convert_to(key, 'UTF8')), 'hex'), 32) PLACING '8' FROM 13 FOR 1) END::uuid $$;

-- Replaces the functions in the schema of the installation. The number of partitions never changes, so it is a constant in `publish`. `publish_all`
-- reads it once for a batch and is not replaced, because it spends its time on rows, not on preparation.
DO $do$
DECLARE
  own CONSTANT text := current_schema();
  statement text;
BEGIN
  FOREACH statement IN ARRAY ARRAY[
  -- Nearly all commits end at the first IF: its bucket is 1 within 25 ms after the last wake-up. The function that reads the sequence saves a
  -- query of it; its NULL before the first wake-up is not 1.
  $f$CREATE OR REPLACE FUNCTION @o@.outbox_wake() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $b$
BEGIN
  IF width_bucket(date_part('epoch', clock_timestamp()) * 1000 - pg_sequence_last_value('@o@.outbox_wake_time'), 0, 25, 1) = 1 THEN
    RETURN NULL;
  END IF;
  IF current_setting('posthaste.wake_ups', true) = 'off' THEN RETURN NULL; END IF;
  PERFORM setval('@o@.outbox_wake_time', floor(date_part('epoch', clock_timestamp()) * 1000)::bigint);
  PERFORM pg_notify('posthaste_' || replace(id::text, '-', '_'), 'sql *') FROM @o@.installation;
  RETURN NULL;
END $b$$f$,

  -- The first IF keeps what a plain event in a transaction of its own does not need out of its way. The UPDATE finds legal topics and keys only,
  -- because the row of a key is written after the check; so it checks the rest itself. A transaction without a number yet has published nothing:
  -- it needs no flag, and its second event wakes too, which costs one more run of the trigger.
  $f$CREATE OR REPLACE FUNCTION @f@.publish(topic text, key text, type text, payload bytea, headers jsonb DEFAULT NULL,
  content_type text DEFAULT 'application/json', event_id uuid DEFAULT NULL) RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $b$
#variable_conflict use_column
DECLARE
  number bigint; of_partition integer; of_group uuid; new_id uuid; own_headers jsonb; trace text; state text; request text; woken boolean;
BEGIN
  IF $5 IS NOT NULL OR $7 IS NOT NULL OR $6 <> 'application/json' OR pg_current_xact_id_if_assigned() IS NOT NULL THEN
    IF @o@.outbox_is_legal($1, $2, $3, octet_length($4), $6) IS NOT TRUE THEN
      PERFORM @o@.outbox_refuse($1, $2, $3, octet_length($4), $6);
    END IF;
    IF $5 IS NOT NULL THEN
      own_headers := @o@.outbox_headers($5);
      request := @o@.outbox_request_id($5);
      trace := @o@.outbox_traceparent($5);
      IF trace IS NOT NULL THEN state := $5 ->> 'tracestate'; END IF;
    END IF;
    IF $7 IS NOT NULL AND EXISTS (SELECT FROM @o@.outbox_event e WHERE e.event_id = $7) THEN RETURN $7; END IF;
    IF pg_current_xact_id_if_assigned() IS NOT NULL THEN
      woken := current_setting('posthaste.woken', true) = 'yes';
      IF woken IS NOT TRUE THEN PERFORM set_config('posthaste.woken', 'yes', true); END IF;
    END IF;
  END IF;

  -- The key's lock. It comes before the id, and assigns the number of the transaction, so that a claim never passes an id that appears later.
  UPDATE @o@.outbox_sequence s SET last = s.last + 1, wakes = woken IS NOT TRUE
    WHERE s.topic = $1 AND s.key = $2 AND $3 ~ '^[^\u0001-\u001F\u007F-\u009F]+$' AND octet_length($3) <= 1024
      AND octet_length($4) <= 983040 AND $6 IS NOT NULL
    RETURNING s.last, s.partition, s.key_group INTO number, of_partition, of_group;
  IF number IS NULL THEN
    IF @o@.outbox_is_legal($1, $2, $3, octet_length($4), $6) IS NOT TRUE THEN
      PERFORM @o@.outbox_refuse($1, $2, $3, octet_length($4), $6);
    END IF;
    INSERT INTO @o@.outbox_sequence AS s (topic, key, last, partition, key_group, wakes)
      VALUES ($1, $2, 1, @o@.outbox_murmur2(convert_to($2, 'UTF8')) % @p@, @o@.outbox_key_group($2), woken IS NOT TRUE)
      ON CONFLICT (topic, key) DO UPDATE SET last = s.last + 1, wakes = excluded.wakes
      RETURNING s.last, s.partition, s.key_group INTO number, of_partition, of_group;
  END IF;

  -- Both rows of the event in one statement. With the key's row in it too, a known key gains nothing, and a new key prepares two such statements.
  WITH e AS (
    INSERT INTO @o@.outbox_event (event_id, key, partition, sequence, occurred_at, hlc_millis, hlc_counter, type, topic, region, traceparent,
        tracestate, payload, key_text, headers, content_type, request_id)
      VALUES (coalesce($7, @o@.outbox_event_id()), of_group, of_partition, number, clock_timestamp(), 0, 0, $3, $1, '', trace, state, $4,
        nullif($2, of_group::text), own_headers, nullif($6, 'application/json'), request)
      ON CONFLICT (event_id) DO NOTHING RETURNING id, key, partition, event_id),
    q AS (INSERT INTO @o@.outbox (id, key, partition, bytes) SELECT id, key, partition, octet_length($4) FROM e)
  SELECT event_id INTO new_id FROM e;
  IF new_id IS NULL THEN
    -- Another transaction has published this event meanwhile. The number goes back; the lock of the key is still held.
    UPDATE @o@.outbox_sequence s SET last = s.last - 1 WHERE s.topic = $1 AND s.key = $2;
    RETURN $7;
  END IF;
  RETURN new_id;
END $b$$f$]
  LOOP
    EXECUTE (SELECT replace(replace(replace(statement, '@o@', quote_ident(own)), '@f@', quote_ident(i.functions)), '@p@', i.partitions::text)
      FROM installation i);
  END LOOP;
END $do$;
