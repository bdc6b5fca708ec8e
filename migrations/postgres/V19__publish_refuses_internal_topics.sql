-- Why: `publish` accepted an event for a topic that only the service writes (a retry topic, a dead-letter topic, the topic of watermarks), and the
-- relay parked it later. Each service that starts stores the names of its internal topics here, and a trigger raises an error for the first event
-- of a key in such a topic, in the transaction of the caller. The trigger fires only for the rows of new keys, so it costs nothing for a key that
-- has published before; if the topic of such a key becomes internal afterwards, the relay parks its events as before.
ALTER TABLE installation ADD COLUMN internal_topics text[] COLLATE "C" NOT NULL DEFAULT '{}';

DO $do$
DECLARE
  own CONSTANT text := quote_ident(current_schema());
BEGIN
  EXECUTE replace($f$CREATE FUNCTION @o@.outbox_refuse_internal_topics() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $b$
DECLARE
  refused CONSTANT text := (SELECT min(k.topic) FROM new_keys k, @o@.installation i WHERE k.topic = ANY (i.internal_topics));
BEGIN
  IF refused IS NOT NULL THEN
    RAISE EXCEPTION 'events cannot be published to %: only the service writes this topic', quote_literal(refused)
      USING ERRCODE = 'invalid_parameter_value',
      HINT = 'Retry topics, dead letter topics and the topics of watermarks and webhooks are internal; publish to a topic of your own.';
  END IF;
  RETURN NULL;
END $b$$f$, '@o@', own);
END $do$;
CREATE TRIGGER refuse_internal_topics AFTER INSERT ON outbox_sequence REFERENCING NEW TABLE AS new_keys
  FOR EACH STATEMENT EXECUTE FUNCTION outbox_refuse_internal_topics();

-- Why: with `standard_conforming_strings = off` in the session of the caller, the literal '\x000000' of V11 is an escape string with a NUL byte, and
-- the first event of each key failed. Otherwise the function is that of V11.
CREATE OR REPLACE FUNCTION outbox_murmur2(data bytea) RETURNS bigint LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
  bytes CONSTANT integer := octet_length(data);
  padded CONSTANT bytea := data || decode('000000', 'hex');
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
