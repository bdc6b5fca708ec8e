-- Why: some names of tables, and the columns `who` and `why`, were words of this repository only. Tables and columns keep their contents; nothing is
-- rewritten. Each rename locks its table for a moment.
ALTER TABLE room RENAME TO disk_space_probe;
ALTER TABLE heartbeat RENAME TO store_probe;
ALTER TABLE store_probe RENAME CONSTRAINT heartbeat_pkey TO store_probe_pkey;
ALTER TABLE member RENAME TO relay_instance;
ALTER TABLE relay_instance RENAME CONSTRAINT member_pkey TO relay_instance_pkey;
ALTER TABLE mark RENAME TO idempotency_record;
ALTER TABLE idempotency_record RENAME CONSTRAINT mark_pkey TO idempotency_record_pkey;
ALTER INDEX mark_by_age RENAME TO idempotency_record_by_age;
ALTER TABLE detour RENAME TO retry_route;
ALTER TABLE retry_route RENAME CONSTRAINT detour_pkey TO retry_route_pkey;
ALTER TABLE redriven_letter RENAME TO redriven_dead_letter;
ALTER TABLE redriven_dead_letter RENAME CONSTRAINT redriven_letter_pkey TO redriven_dead_letter_pkey;
ALTER TABLE redriven_dead_letter RENAME COLUMN who TO operator;
ALTER TABLE redriven_dead_letter RENAME COLUMN why TO reason;
ALTER TABLE audit RENAME TO outbox_audit;
ALTER TABLE outbox_audit RENAME CONSTRAINT audit_pkey TO outbox_audit_pkey;
ALTER TABLE outbox_audit RENAME COLUMN who TO operator;
ALTER TABLE outbox_audit RENAME COLUMN why TO reason;
ALTER SEQUENCE audit_id_seq RENAME TO outbox_audit_id_seq;

-- Instances of the previous version run during a rolling upgrade, and their statements have the old names. A view of each old name shows the table
-- with the old names of its columns; PostgreSQL inserts, updates and deletes through such a view. Statements of that version delete rows of `mark`
-- and `detour` by their ctid, which is a column of these two views. The views are of no use once every instance has this version.
CREATE VIEW room AS SELECT * FROM disk_space_probe;
CREATE VIEW heartbeat AS SELECT * FROM store_probe;
CREATE VIEW member AS SELECT * FROM relay_instance;
CREATE VIEW mark AS SELECT ctid, * FROM idempotency_record;
CREATE VIEW detour AS SELECT ctid, * FROM retry_route;
CREATE VIEW redriven_letter AS
SELECT topic, partition, "offset", timestamp, taken_at, arrived, operator AS who, reason AS why FROM redriven_dead_letter;
CREATE VIEW audit AS SELECT id, acted_at, action, row_id, operator AS who, reason AS why FROM outbox_audit;

-- A role that had rights on a table or on columns of it has them on the view too, with its grant options.
DO $do$
DECLARE
  statement text;
BEGIN
  FOR statement IN
    SELECT format('GRANT %s%s ON %I TO %s%s', a.privilege_type, '(' || quote_ident(r.column_name) || ')', r.view_name,
      CASE WHEN a.grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END, CASE WHEN a.is_grantable THEN ' WITH GRANT OPTION' END)
    FROM (VALUES ('room', 'disk_space_probe'), ('heartbeat', 'store_probe'), ('member', 'relay_instance'), ('mark', 'idempotency_record'),
        ('detour', 'retry_route'), ('redriven_letter', 'redriven_dead_letter'), ('audit', 'outbox_audit')) AS names (view_name, table_name)
      CROSS JOIN LATERAL (SELECT view_name, NULL, relacl FROM pg_class WHERE oid = table_name::regclass
        UNION ALL SELECT view_name, CASE attname WHEN 'operator' THEN 'who' WHEN 'reason' THEN 'why' ELSE attname END, attacl
          FROM pg_attribute WHERE attrelid = table_name::regclass AND NOT attisdropped) r (view_name, column_name, acl)
      CROSS JOIN LATERAL aclexplode(r.acl) a
    WHERE a.privilege_type IN ('SELECT', 'INSERT', 'UPDATE', 'DELETE')
  LOOP
    EXECUTE statement;
  END LOOP;
END $do$;

-- Why: the documented rights of a role that adopts a table did not let it read where the functions are and which topics are internal.
DO $do$
BEGIN
  IF to_regrole('posthaste_publisher') IS NOT NULL THEN
    GRANT SELECT (functions, internal_topics) ON installation TO posthaste_publisher;
  END IF;
END $do$;
