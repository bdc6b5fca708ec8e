//! Migrations: forward only, applied once, and only on request.
mod table_names;

use std::time::Duration;

use futures::future::join_all;
use kit::wait::scaled;
use postgres::{AdoptError, AdoptedTable, Options, Postgres, PostgresOpenError, adopt, migrate, migration_status};

use crate::relay::migration_files::database_of_version;
use crate::support::{Database, until_autovacuum_works};

#[tokio::test]
async fn empty_database_is_refused_with_the_command_that_migrates_it() {
    let database = Database::empty().await;

    let refused = Postgres::open(database.options("a")).await.err().unwrap();

    assert!(matches!(refused, PostgresOpenError::MissingMigrations { .. }) && !refused.is_temporary(), "{refused}");
    assert!(refused.is_config(), "the exit code with which a service manager does not repeat the start");
    let text = refused.to_string();
    assert!(
        text.contains("posthaste migrate up --config FILE")
            && text.contains("serve --migrate")
            && text.contains("V1__"),
        "{text}"
    );
    let pending = migration_status(&database.options("a")).await.unwrap();
    assert!(!pending.is_empty() && pending.iter().all(|migration| migration.applied_at.is_none()));
    let tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'";
    let count: i64 = database.client().await.query_one(tables, &[]).await.unwrap().get(0);
    assert_eq!(count, 0, "reading the status changes nothing");
}

#[tokio::test]
async fn migrations_are_applied_once_and_opening_may_apply_them() {
    let database = Database::empty().await;
    let options = database.options("a");

    let applied = migrate(&options).await.unwrap();

    let versions: Vec<u32> = applied.iter().map(|migration| migration.version).collect();
    assert_eq!(versions, (1..=21).collect::<Vec<u32>>());
    assert_eq!(migrate(&options).await.unwrap(), []);
    let seen = migration_status(&options).await.unwrap();
    assert_eq!(seen, applied, "with the time of each");
    assert!(seen.iter().all(|migration| migration.applied_at.is_some() && migration.checksum.len() == 64));
    let store = Postgres::open(Options { migrate: true, ..options }).await.unwrap();
    assert_eq!((store.partitions(), store.installation().len()), (crate::support::PARTITIONS, 36));
}

/// Earlier programs recorded the SHA-256 of each whole text, and its comments have changed since. The literal is the checksum of what they recorded:
/// this program opens their databases, and they open its databases.
#[tokio::test]
async fn recorded_checksums_are_those_of_the_texts_that_were_released_first() {
    let database = Database::own().await;

    let text = "SELECT encode(sha256(string_agg(version || ' ' || checksum, E'\n' ORDER BY version)::bytea), 'hex')
        FROM posthaste_migration WHERE version <= 19";
    let recorded: String = database.client().await.query_one(text, &[]).await.unwrap().get(0);

    assert!(Postgres::open(database.options("a")).await.is_ok());
    assert_eq!(recorded, "013e1d01796e7fd5b8b59c33ef39335909201e9ee98da52c5ea5b6f6e4ec3e21");
}

#[tokio::test]
async fn database_that_is_not_utf_8_is_refused_before_anything_is_installed() {
    let database = Database::ascii().await;

    let refused = migrate(&database.options("a")).await.unwrap_err();

    assert!(matches!(&refused, PostgresOpenError::NotUtf8 { encoding, .. } if encoding == "SQL_ASCII"), "{refused}");
    assert!(refused.is_config() && refused.to_string().contains("ENCODING 'UTF8'"), "{refused}");
    let tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'";
    let count: i64 = database.client().await.query_one(tables, &[]).await.unwrap().get(0);
    assert_eq!(count, 0);
}

#[tokio::test]
async fn migration_is_applied_while_autovacuum_works_on_its_table() {
    let database = database_of_version(11).await;
    let client = database.client().await;
    let settings = "ALTER TABLE outbox_event SET (autovacuum_vacuum_threshold = 0, autovacuum_vacuum_cost_delay = 100,
        autovacuum_vacuum_cost_limit = 1)";
    client.batch_execute(settings).await.unwrap();
    let rows = "INSERT INTO outbox_event (event_id, key, partition, sequence, occurred_at, hlc_millis, hlc_counter, type, topic, region, payload)
        SELECT gen_random_uuid(), gen_random_uuid(), 0, 1, now(), 0, 0, 't', 't', '', 'x' FROM generate_series(1, 20000)";
    client.batch_execute(rows).await.unwrap();
    client.batch_execute("DELETE FROM outbox_event; SELECT pg_stat_force_next_flush()").await.unwrap();
    until_autovacuum_works(&client, "outbox_event").await;

    let options = database.options("a");
    let applied = tokio::time::timeout(scaled(Duration::from_secs(20)), migrate(&options)).await;

    let applied = applied.expect("not after minutes").unwrap();
    assert_eq!(applied.first().map(|migration| migration.version), Some(12));
}

#[tokio::test]
async fn server_without_a_needed_setting_is_refused_with_the_version_that_is_needed() {
    let database = Database::migrated().await;
    let mut options = database.options("a");
    let separator = if database.url.contains('?') { '&' } else { '?' };
    let unknown = "options=-c%20client_connection_check_interval_of_version_99%3D1";
    options.url = format!("{}{separator}{unknown}", database.url).into();

    let refused = Postgres::open(options).await.err().unwrap();

    assert!(refused.to_string().ends_with("PostgreSQL 14 or later is needed") && !refused.is_temporary(), "{refused}");
}

/// Settings that change how texts of SQL are read and how names are written, as an operator sets them for all sessions of a database.
#[tokio::test]
async fn settings_of_the_database_change_neither_migrations_nor_adoptions() {
    for pooler in [false, true] {
        let database = Database::empty().await;
        let client = database.client().await;
        let settings = ["standard_conforming_strings = off", "quote_all_identifiers = on"];
        for setting in settings {
            client.batch_execute(&format!("ALTER DATABASE {} SET {setting}", database.name)).await.unwrap();
        }
        let client = database.client().await;
        let table = "CREATE SCHEMA shop; CREATE TABLE shop.outbox (id int, aggregatetype text, aggregateid text, type text, payload jsonb)";
        client.batch_execute(table).await.unwrap();
        let options = Options { pooler, ..database.options("a") };

        migrate(&options).await.unwrap();
        let adoption = |table: &str| AdoptedTable { table: table.into(), ..AdoptedTable::default() };
        adopt(&options, &adoption("shop.outbox")).await.unwrap();

        client.batch_execute("INSERT INTO shop.outbox VALUES (1, 'Order', 'k', 't', '{}')").await.unwrap();
        let published = "SELECT count(*) FROM outbox_event WHERE event_id = outbox_key_group('shop.outbox:1')";
        assert_eq!(client.query_one(published, &[]).await.unwrap().get::<_, i64>(0), 1, "pooler: {pooler}");
        let own = adopt(&options, &adoption("outbox")).await.unwrap_err();
        assert!(matches!(own, AdoptError::OwnTable(_)), "{own}");
        assert!(Postgres::open(options).await.is_ok());
    }
}

#[tokio::test]
async fn concurrent_migrations_apply_each_step_once() {
    let database = Database::empty().await;
    let options = database.options("a");

    let results = join_all((0..6).map(|_| migrate(&options))).await;

    let applied: usize = results.into_iter().map(|applied| applied.unwrap().len()).sum();
    assert_eq!(applied, 21, "each step once");
}

#[tokio::test]
async fn newer_schema_and_changed_migration_are_refused() {
    let database = Database::own().await;
    let client = database.client().await;
    client.batch_execute("UPDATE posthaste_migration SET checksum = 'x'").await.unwrap();
    let changed = Postgres::open(database.options("a")).await.err().unwrap();
    assert!(matches!(changed, PostgresOpenError::ChangedMigration { version: 1, .. }), "{changed}");

    client.batch_execute("INSERT INTO posthaste_migration VALUES (99, 'later', 'y', now())").await.unwrap();
    for refused in [Postgres::open(database.options("a")).await.err(), migrate(&database.options("a")).await.err()] {
        let refused = refused.unwrap();
        assert!(
            matches!(refused, PostgresOpenError::NewerSchema { found: 99, .. }) && !refused.is_temporary(),
            "{refused}"
        );
        assert!(refused.to_string().ends_with("run the newer program"), "{refused}");
    }
}

#[tokio::test]
async fn failed_migration_leaves_nothing_behind() {
    let database = Database::empty().await;
    let client = database.client().await;
    client.batch_execute("CREATE TABLE audit (mine text)").await.unwrap();

    let refused = migrate(&database.options("a")).await.err().unwrap();

    assert!(matches!(refused, PostgresOpenError::Refused { .. }), "{refused}");
    let tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'";
    assert_eq!(client.query_one(tables, &[]).await.unwrap().get::<_, i64>(0), 1, "the foreign table, and no other");
}
