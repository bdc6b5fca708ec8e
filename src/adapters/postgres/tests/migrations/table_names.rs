//! Migration V20 renames tables. Instances of the previous version still run then: each of their statements works on a view of the old name.
use postgres::migrate;
use tokio_postgres::Client;

use crate::relay::migration_files::database_of_version;

/// The last migration before the tables are renamed.
const EARLIER: usize = 19;

/// The statements of the previous version on the tables that are renamed, with literals for their parameters and without columns that do not
/// matter here, and how many rows each returns or changes. They are executed in this order.
const STATEMENTS: &[(&str, u64)] = &[
    // The probe, twice as each instance does.
    ("INSERT INTO heartbeat (instance, beaten_at) VALUES ('a', clock_timestamp())
       ON CONFLICT (instance) DO UPDATE SET beaten_at = excluded.beaten_at", 1),
    ("INSERT INTO heartbeat (instance, beaten_at) VALUES ('a', clock_timestamp())
       ON CONFLICT (instance) DO UPDATE SET beaten_at = excluded.beaten_at", 1),
    ("INSERT INTO room SELECT repeat('x', 262144)", 1),
    // Idempotency records.
    ("WITH inserted AS (INSERT INTO mark (subject, key, fingerprint, order_id)
         SELECT * FROM unnest(ARRAY['ann', 'ann', 'ann'], ARRAY['1', '2', '3'], ARRAY['\\x01', '\\x02', '\\x03']::bytea[],
           array_fill(gen_random_uuid(), ARRAY[3])) ON CONFLICT DO NOTHING RETURNING subject, key)
       SELECT unnest(array_agg(key)) FROM inserted", 3),
    ("WITH inserted AS (INSERT INTO mark (subject, key, fingerprint, order_id)
         SELECT * FROM unnest(ARRAY['ann', 'ann'], ARRAY['3', '4'], ARRAY['\\x03', '\\x04']::bytea[], array_fill(gen_random_uuid(), ARRAY[2]))
         ON CONFLICT DO NOTHING RETURNING subject, key)
       SELECT unnest(array_agg(key)) FROM inserted", 1),
    ("SELECT record.subject, record.key, record.fingerprint, record.order_id FROM unnest(ARRAY['ann'], ARRAY['3']) AS asked (subject, key)
       JOIN mark record ON record.subject = asked.subject AND record.key = asked.key", 1),
    ("DELETE FROM mark record USING unnest(ARRAY['ann'], ARRAY['4']) AS asked (subject, key)
       WHERE record.subject = asked.subject AND record.key = asked.key", 1),
    ("WITH gone AS (DELETE FROM mark WHERE ctid = ANY(ARRAY(SELECT ctid FROM mark
         WHERE created_at < statement_timestamp() - make_interval(secs => -60) ORDER BY created_at LIMIT 2 FOR UPDATE SKIP LOCKED))
       RETURNING 1) SELECT * FROM gone", 2),
    // Instances of the relay.
    ("WITH own AS (INSERT INTO member (instance, seen_at, dead_after) VALUES ('b', clock_timestamp(), make_interval(secs => 10))
         ON CONFLICT (instance) DO UPDATE SET seen_at = clock_timestamp(), dead_after = excluded.dead_after)
       SELECT instance FROM (SELECT instance FROM member WHERE instance <> 'b' OFFSET 0) m", 0),
    ("WITH own AS (INSERT INTO member (instance, seen_at, dead_after) VALUES ('a', clock_timestamp(), make_interval(secs => 10))
         ON CONFLICT (instance) DO UPDATE SET seen_at = clock_timestamp(), dead_after = excluded.dead_after)
       SELECT instance FROM (SELECT instance FROM member WHERE instance <> 'a' OFFSET 0) m", 1),
    ("SELECT seen_at + dead_after > clock_timestamp() FROM member WHERE instance = 'a'", 1),
    ("DELETE FROM member WHERE seen_at - 3 * dead_after < clock_timestamp() AND instance = 'b'", 1),
    ("SELECT m.instance, l.partition FROM outbox_lease l
       LEFT JOIN (SELECT instance, seen_at + dead_after AS dies FROM member OFFSET 0) m ON m.instance = l.owner", 4),
    ("INSERT INTO idempotency AS i (subject, key, fingerprint, order_id, instance, until)
       VALUES ('ann', '1', '\\x01', NULL, 'a', clock_timestamp() + make_interval(secs => 9))
       ON CONFLICT (subject, key) DO UPDATE SET fingerprint = excluded.fingerprint, order_id = NULL, instance = excluded.instance,
         until = excluded.until
       WHERE i.until <= clock_timestamp() OR (i.order_id IS NULL AND EXISTS (SELECT FROM member m WHERE m.instance = i.instance
         AND m.seen_at + m.dead_after <= clock_timestamp())) RETURNING 1", 1),
    // Retry routes.
    ("INSERT INTO detour AS d (consumer_group, key, stage, last_offset) VALUES ('g', 'k', 1, 7), ('g', 'l', 1, 7), ('g', 'm', 1, 7)
       ON CONFLICT (consumer_group, key) DO UPDATE
         SET stage = GREATEST(d.stage, excluded.stage), last_offset = GREATEST(d.last_offset, excluded.last_offset)", 3),
    ("INSERT INTO detour AS d (consumer_group, key, stage, last_offset) VALUES ('g', 'k', 2, 5)
       ON CONFLICT (consumer_group, key) DO UPDATE
         SET stage = GREATEST(d.stage, excluded.stage), last_offset = GREATEST(d.last_offset, excluded.last_offset)", 1),
    ("SELECT stage, last_offset FROM detour WHERE consumer_group = 'g' AND key = 'k' AND stage = 2 AND last_offset = 7", 1),
    ("DELETE FROM detour WHERE consumer_group = 'g' AND key = 'l' AND last_offset <= 7", 1),
    ("WITH gone AS (DELETE FROM detour WHERE ctid = ANY(ARRAY(
         SELECT ctid FROM detour WHERE consumer_group = 'g' LIMIT 1 FOR UPDATE)) RETURNING 1) SELECT * FROM gone", 1),
    // Operators.
    ("INSERT INTO audit (action, row_id, who, why) SELECT 'PARK', r, 'olga', 'broken' FROM unnest(ARRAY[1, 2]::int8[]) AS r", 2),
    ("SELECT id, acted_at, action, row_id, who, why FROM audit WHERE id < 2 AND who = 'olga' ORDER BY id DESC LIMIT 9", 1),
    ("INSERT INTO redriven_letter AS r (topic, partition, \"offset\", timestamp, taken_at, who, why)
       SELECT u.*, clock_timestamp(), 'olga', 'fixed' FROM (SELECT DISTINCT * FROM unnest(ARRAY['t', 't'], ARRAY[0, 0], ARRAY[5, 6]::int8[],
         ARRAY[9, 9]::int8[]) ORDER BY 1, 2, 3, 4) AS u
       ON CONFLICT (topic, partition, \"offset\", timestamp) DO UPDATE SET taken_at = excluded.taken_at, who = excluded.who, why = excluded.why
         WHERE NOT r.arrived AND r.taken_at <= excluded.taken_at - make_interval(secs => 0)
       RETURNING topic, partition, \"offset\", timestamp", 2),
    ("UPDATE redriven_letter SET arrived = true WHERE (topic, partition, \"offset\", timestamp) IN
       (SELECT * FROM unnest(ARRAY['t'], ARRAY[0], ARRAY[5]::int8[], ARRAY[9]::int8[]))", 1),
    ("INSERT INTO redriven_letter AS r (topic, partition, \"offset\", timestamp, taken_at, who, why)
       SELECT u.*, clock_timestamp(), 'paul', 'again' FROM (SELECT DISTINCT * FROM unnest(ARRAY['t', 't'], ARRAY[0, 0], ARRAY[5, 6]::int8[],
         ARRAY[9, 9]::int8[]) ORDER BY 1, 2, 3, 4) AS u
       ON CONFLICT (topic, partition, \"offset\", timestamp) DO UPDATE SET taken_at = excluded.taken_at, who = excluded.who, why = excluded.why
         WHERE NOT r.arrived AND r.taken_at <= excluded.taken_at - make_interval(secs => 0)
       RETURNING topic, partition, \"offset\", timestamp", 1),
    ("SELECT topic, partition, \"offset\", timestamp, who, why, taken_at, arrived FROM redriven_letter
       WHERE (topic, partition, \"offset\", timestamp) IN (SELECT * FROM unnest(ARRAY['t'], ARRAY[0], ARRAY[6]::int8[], ARRAY[9]::int8[]))", 1),
    ("DELETE FROM redriven_letter WHERE NOT arrived AND (topic, partition, \"offset\", timestamp) IN
       (SELECT * FROM unnest(ARRAY['t', 't'], ARRAY[0, 0], ARRAY[5, 6]::int8[], ARRAY[9, 9]::int8[]))", 1),
];

/// What the tables have under their new names after [`STATEMENTS`].
const ROWS_LEFT: &str = "SELECT concat_ws('; ', (SELECT string_agg(instance, ',') FROM store_probe), (SELECT count(*) FROM disk_space_probe),
       (SELECT string_agg(key, ',') FROM idempotency_record), (SELECT string_agg(instance, ',') FROM relay_instance),
       (SELECT count(*) FROM retry_route), (SELECT string_agg(action || row_id || operator || reason, ',' ORDER BY id) FROM outbox_audit),
       (SELECT string_agg(topic || \"offset\" || operator || reason, ',') FROM redriven_dead_letter))";

async fn assert_rows(client: &Client, text: &str, expected: &str) {
    let found: String = client.query_one(text, &[]).await.unwrap().get(0);
    assert_eq!(found, expected);
}

#[tokio::test]
async fn statements_of_the_previous_version_work_after_tables_were_renamed() {
    let database = database_of_version(EARLIER).await;
    let client = database.client().await;
    let mut prepared = Vec::new();
    for (text, rows) in STATEMENTS {
        prepared.push((text, client.prepare(text).await.unwrap(), *rows));
    }

    migrate(&database.options("a")).await.unwrap();

    for (text, statement, rows) in prepared {
        assert_eq!(client.execute(&statement, &[]).await.unwrap(), rows, "{text}");
    }
    assert_rows(&client, ROWS_LEFT, "a; 1; 3; a; 1; PARK1olgabroken,PARK2olgabroken; t5olgafixed").await;
}

#[tokio::test]
async fn role_with_rights_on_a_renamed_table_has_them_on_its_view() {
    let database = database_of_version(EARLIER).await;
    let client = database.client().await;
    client.batch_execute("GRANT SELECT, DELETE ON mark TO pg_monitor; GRANT SELECT ON audit TO PUBLIC").await.unwrap();

    migrate(&database.options("a")).await.unwrap();

    let rights = "SELECT string_agg(has_table_privilege('pg_monitor', relation, privilege)::text, ',' ORDER BY relation, privilege)
        FROM unnest(ARRAY['audit', 'mark', 'member']) AS relation, unnest(ARRAY['DELETE', 'INSERT', 'SELECT']) AS privilege";
    assert_rows(&client, rights, "false,false,true,true,false,true,false,false,false").await;
}

#[tokio::test]
async fn rights_on_columns_and_grant_options_are_kept_on_the_views() {
    let database = database_of_version(EARLIER).await;
    let client = database.client().await;
    let grants = "GRANT SELECT (id, who), UPDATE (why) ON audit TO pg_monitor WITH GRANT OPTION; GRANT SELECT (who) ON redriven_letter TO PUBLIC;
        GRANT INSERT ON detour TO pg_monitor WITH GRANT OPTION; GRANT SELECT (ctid, key) ON detour TO pg_monitor";
    client.batch_execute(grants).await.unwrap();

    migrate(&database.options("a")).await.unwrap();

    let rights = "SELECT string_agg(concat_ws(' ', relation, acl.name, privilege_type, CASE WHEN is_grantable THEN 'grantable' END), ', '
          ORDER BY relation, acl.name)
        FROM unnest(ARRAY['audit', 'detour', 'redriven_letter']) AS relation
          CROSS JOIN LATERAL (SELECT NULL, relacl FROM pg_class WHERE oid = relation::regclass
            UNION ALL SELECT attname, attacl FROM pg_attribute WHERE attrelid = relation::regclass) acl (name, rights)
          CROSS JOIN LATERAL aclexplode(rights) WHERE grantee IN (0, 'pg_monitor'::regrole)";
    let expected = "audit id SELECT grantable, audit who SELECT grantable, audit why UPDATE grantable, detour ctid SELECT, detour key SELECT, \
        detour INSERT grantable, redriven_letter who SELECT";
    assert_rows(&client, rights, expected).await;
}
