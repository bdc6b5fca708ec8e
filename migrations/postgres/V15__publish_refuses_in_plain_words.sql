-- Why: `publish` raises errors in plain English for events that the relay would park. `x-webhook` is a new reserved header: in a retry topic it
-- names the webhook whose secret signs the event. Otherwise these functions are those of V8.
CREATE OR REPLACE FUNCTION outbox_refuse(topic text, key text, type text, bytes integer, content_type text) RETURNS void
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  IF topic IS NULL OR key IS NULL OR type IS NULL OR bytes IS NULL OR content_type IS NULL THEN
    RAISE EXCEPTION 'an event needs a topic, a key, a type, a payload and a content type: one of them is NULL'
      USING ERRCODE = 'null_value_not_allowed';
  ELSIF octet_length(topic) NOT BETWEEN 1 AND 249 OR topic ~ '[^A-Za-z0-9._-]' OR topic IN ('.', '..') THEN
    RAISE EXCEPTION 'a topic cannot be named %', quote_literal(left(topic, 300)) USING ERRCODE = 'invalid_parameter_value',
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

CREATE OR REPLACE FUNCTION outbox_headers(headers jsonb) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  name text; value jsonb; bytes integer := 0; own jsonb := headers - 'traceparent' - 'tracestate' - 'x-request-id';
BEGIN
  IF jsonb_typeof(headers) <> 'object' THEN
    RAISE EXCEPTION 'the headers of an event are not a JSON object' USING ERRCODE = 'invalid_parameter_value',
      HINT = 'Headers are an object of names and texts, such as {"tenant": "blue"}.';
  END IF;
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
        'x-attempt', 'x-failure-type', 'x-hlc', 'x-region', 'x-request-id', 'x-sequence', 'x-webhook') THEN
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

-- The function of an adopted table runs with the rights of its owner, and a trigger needs no EXECUTE right of the session that fires it. With that
-- right, which PUBLIC had, any role could publish to topics by a trigger on a table of its own. PUBLIC keeps the right on functions of other owners
-- until `posthaste adopt` runs again.
DO $do$
DECLARE
  adopted regprocedure;
BEGIN
  FOR adopted IN SELECT oid::regprocedure FROM pg_proc
    WHERE proname LIKE 'outbox\_adopted\_%' AND prosecdef AND pg_has_role(current_user, proowner, 'USAGE') LOOP
    EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', adopted);
  END LOOP;
END $do$;
