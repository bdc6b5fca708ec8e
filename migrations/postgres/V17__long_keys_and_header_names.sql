-- Why: `outbox_headers` converted the name of a header to lower case by the collation of the database. With a Turkish or Azeri collation the lower
-- case of `ID` is not `id`, so the function accepted headers that the relay refuses. Otherwise the function is that of V16.
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
    ELSIF lower(name COLLATE "C") ~ '^(ce_|kafka_)' OR lower(name COLLATE "C") IN ('content-type', 'id', 'retry_topic-attempts',
        'traceparent', 'tracestate', 'x-attempt', 'x-failure-type', 'x-hlc', 'x-omitted-value-bytes', 'x-region', 'x-request-id', 'x-sequence',
        'x-webhook') THEN
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

-- Why: the view cut keys, types and topics to 255 characters, so that different keys could look the same. Debezium documents `varchar(255)` as the
-- smallest type; these columns have no length limit now. PostgreSQL cannot change the types of a view's columns in place, so the block drops and
-- creates the view, and grants the rights on it again.
DO $do$
DECLARE
  grants CONSTANT text[] := ARRAY(
    SELECT format('GRANT %s%s ON outbox_debezium TO %s%s', a.privilege_type, '(' || quote_ident(r.column_name) || ')',
      CASE WHEN a.grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END, CASE WHEN a.is_grantable THEN ' WITH GRANT OPTION' END)
    FROM (SELECT NULL, relacl FROM pg_class WHERE oid = 'outbox_debezium'::regclass
      UNION ALL SELECT attname, attacl FROM pg_attribute WHERE attrelid = 'outbox_debezium'::regclass) r (column_name, acl)
      CROSS JOIN LATERAL aclexplode(r.acl) a);
  statement text;
BEGIN
  DROP VIEW outbox_debezium;
  CREATE VIEW outbox_debezium AS
  SELECT event_id AS id,
    (CASE WHEN region <> '' THEN 'order' ELSE regexp_replace(topic, '^outbox\.event\.', '') END)::varchar AS aggregatetype,
    coalesce(key_text, key::text)::varchar AS aggregateid, type::varchar AS type, outbox_json(payload) AS payload
  FROM outbox_event;
  FOREACH statement IN ARRAY grants LOOP EXECUTE statement; END LOOP;
END $do$;
