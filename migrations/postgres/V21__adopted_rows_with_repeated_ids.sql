-- Why: where the id of an adopted table is not a UUID, the id of the event is derived from the table and the row's id. `publish` returns without a
-- change if the event exists, so a row was lost when ids began again (TRUNCATE … RESTART IDENTITY) or when another publisher had used the derived
-- id. The trigger's function of such a table calls this function instead of `publish`: an insert whose derived id belongs to another event fails,
-- and one of the same event is still a repetition. The check comes after `publish`, so that it sees an event that was committed meanwhile.
-- SECURITY DEFINER as `publish`: the role that adopts a table may publish, and reads no event. Roles that may call `publish` may call this function.
DO $do$
DECLARE
  own CONSTANT text := current_schema();
  grantee text;
BEGIN
  EXECUTE (SELECT replace(replace($f$CREATE FUNCTION @o@.outbox_publish_adopted(topic text, key text, type text, payload bytea, headers jsonb,
  content_type text, event_id uuid, id_is_derived boolean) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $b$
BEGIN
  PERFORM @f@.publish($1, $2, $3, $4, $5, $6, $7);
  IF $8 AND NOT EXISTS (SELECT FROM @o@.outbox_event e WHERE e.event_id = $7 AND e.topic = $1 COLLATE "C"
      AND coalesce(e.key_text, e.key::text) = $2 COLLATE "C" AND e.type = $3 COLLATE "C" AND e.payload = $4) THEN
    RAISE EXCEPTION 'the id of a row belongs to another event, which was published before' USING ERRCODE = 'unique_violation',
      HINT = 'An id must not repeat within outbox.retention: let the sequence of the ids continue, or adopt the table with a uuid column as the id.';
  END IF;
END $b$$f$, '@o@', quote_ident(own)), '@f@', quote_ident(i.functions)) FROM installation i);
  REVOKE ALL ON FUNCTION outbox_publish_adopted(text, text, text, bytea, jsonb, text, uuid, boolean) FROM PUBLIC;
  FOR grantee IN
    SELECT CASE WHEN a.grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END
    FROM installation i JOIN pg_namespace n ON n.nspname = i.functions
      JOIN pg_proc p ON p.pronamespace = n.oid AND p.proname = 'publish'
        AND oidvectortypes(p.proargtypes) = 'text, text, text, bytea, jsonb, text, uuid'
      CROSS JOIN LATERAL aclexplode(p.proacl) a
    WHERE a.privilege_type = 'EXECUTE'
  LOOP
    EXECUTE format('GRANT EXECUTE ON FUNCTION outbox_publish_adopted(text, text, text, bytea, jsonb, text, uuid, boolean) TO %s', grantee);
  END LOOP;
END $do$;
