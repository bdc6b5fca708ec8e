-- Why: `outbox_headers` accepted headers that consumers write when they forward a record, and that they trust when they read it. A record with a
-- forged `x-detour-round` could send the later messages of its key from retry topic to retry topic without end. Otherwise the function is that of
-- V17.
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
    ELSIF lower(name COLLATE "C") ~ '^(ce_|kafka_|retry_topic-)' OR lower(name COLLATE "C") IN ('content-type', 'id',
        'traceparent', 'tracestate', 'x-attempt', 'x-detour-round', 'x-failure-type', 'x-hlc', 'x-omitted-value-bytes', 'x-redriven-by', 'x-region',
        'x-request-id', 'x-sequence', 'x-webhook') THEN
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
