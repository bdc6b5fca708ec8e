//! The schema's versions: forward only, once, and never without being asked.
use futures::future::join_all;
use postgres::{OpenError, Options, Postgres, migrate, status};

use crate::support::Database;

#[tokio::test]
async fn an_empty_database_is_refused_with_the_command_that_helps() {
    let database = Database::empty().await;

    let refused = Postgres::open(database.options("a")).await.err().unwrap();

    assert!(matches!(refused, OpenError::MissingMigrations { .. }) && !refused.may_pass(), "{refused}");
    let told = refused.to_string();
    assert!(
        told.contains("posthaste migrate up") && told.contains("serve --migrate") && told.contains("V1__"),
        "{told}"
    );
    let pending = status(&database.options("a")).await.unwrap();
    assert!(!pending.is_empty() && pending.iter().all(|migration| migration.applied_at.is_none()));
    let tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'";
    let count: i64 = database.client().await.query_one(tables, &[]).await.unwrap().get(0);
    assert_eq!(count, 0, "looking changes nothing");
}

#[tokio::test]
async fn migrating_applies_once_and_opening_may_do_it() {
    let database = Database::empty().await;
    let options = database.options("a");

    let applied = migrate(&options).await.unwrap();

    assert_eq!(applied.iter().map(|migration| migration.version).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(migrate(&options).await.unwrap(), []);
    let seen = status(&options).await.unwrap();
    assert!(seen.iter().all(|migration| migration.applied_at.is_some() && migration.checksum.len() == 64));
    let store = Postgres::open(Options { migrate: true, ..options }).await.unwrap();
    assert_eq!((store.partitions(), store.installation().len()), (crate::support::PARTITIONS, 36));
}

#[tokio::test]
async fn of_many_that_migrate_at_once_one_does_it() {
    let database = Database::empty().await;
    let options = database.options("a");

    let done = join_all((0..6).map(|_| migrate(&options))).await;

    let applied: usize = done.into_iter().map(|done| done.unwrap().len()).sum();
    assert_eq!(applied, 2, "each step once");
}

#[tokio::test]
async fn a_newer_schema_and_a_changed_migration_are_refused() {
    let database = Database::own().await;
    let client = database.client().await;
    client.batch_execute("UPDATE posthaste_migration SET checksum = 'x'").await.unwrap();
    let changed = Postgres::open(database.options("a")).await.err().unwrap();
    assert!(matches!(changed, OpenError::ChangedMigration { version: 1, .. }), "{changed}");

    client.batch_execute("INSERT INTO posthaste_migration VALUES (99, 'later', 'y', now())").await.unwrap();
    for refused in [Postgres::open(database.options("a")).await.err(), migrate(&database.options("a")).await.err()] {
        let refused = refused.unwrap();
        assert!(matches!(refused, OpenError::NewerSchema { found: 99, .. }) && !refused.may_pass(), "{refused}");
    }
}

#[tokio::test]
async fn a_step_that_fails_leaves_nothing_behind() {
    let database = Database::empty().await;
    let client = database.client().await;
    client.batch_execute("CREATE TABLE audit (mine text)").await.unwrap();

    let refused = migrate(&database.options("a")).await.err().unwrap();

    assert!(matches!(refused, OpenError::Refused { .. }), "{refused}");
    let tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'";
    assert_eq!(client.query_one(tables, &[]).await.unwrap().get::<_, i64>(0), 1, "somebody else's table, and no other");
}
