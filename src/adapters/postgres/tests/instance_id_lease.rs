//! One live process per instance id.
use std::time::Duration;

use kit::wait::scaled;
use ports::orders::OrderStore;
use postgres::{Options, Postgres, PostgresOpenError};

use crate::proxy::Proxy;
use crate::support::{Database, reopened, until};

/// Longest wait until a process notices that it has lost its instance id.
const LIMIT: Duration = Duration::from_secs(20);

/// A heartbeat of this age is old enough for no process that is only paused.
const HOUR: Duration = Duration::from_secs(3_600);

fn held(opened: Result<Postgres, PostgresOpenError>) -> String {
    match opened {
        Err(error @ PostgresOpenError::Held { .. }) => error.to_string(),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("two processes hold one instance id"),
    }
}

#[tokio::test]
async fn second_live_process_is_refused_with_the_holder_in_the_error() {
    for pooler in [false, true] {
        let database = Database::migrated().await;
        // The instance id is free because it was released, and not because a heartbeat is old.
        let options = || Options { pooler, dead_after: HOUR, ..database.options("here") };
        let first = Postgres::open(options()).await.unwrap();
        first.announce("127.0.0.1:8080").await.unwrap();

        let error = held(Postgres::open(options()).await);

        let pid = std::process::id().to_string();
        for part in ["here", &pid, "127.0.0.1:8080"] {
            assert!(error.contains(part), "{error} lacks {part}");
        }
        let other = Postgres::open(Options { pooler, ..database.options("there") }).await.unwrap();
        first.close().await.unwrap();
        first.close().await.unwrap();
        other.close().await.unwrap();
        reopened(options()).await;
    }
}

#[tokio::test]
async fn operator_needs_no_instance_id() {
    let database = Database::migrated().await;
    let _service = database.store("here").await;

    let operator = Postgres::open_for_operator(database.options("here")).await.unwrap();

    assert_eq!(operator.count(&ports::orders::OrderFilter::default()).await.unwrap(), 0);
}

#[tokio::test]
async fn instance_id_of_a_dead_process_is_free_at_once() {
    let database = Database::migrated().await;
    let first = database.store("here").await;
    // As after kill -9: the sockets close, and nothing is released.
    drop(first);

    until("the server to notice", async || Postgres::open(database.options("here")).await.ok()).await;
}

#[tokio::test]
async fn holder_with_an_expired_heartbeat_is_ended_by_a_claimant_of_the_instance_id() {
    for pooler in [false, true] {
        let database = Database::migrated().await;
        // Its next heartbeat is an hour away.
        let silent = Options { pooler, heartbeat_interval: HOUR, ..database.options("here") };
        let first = Postgres::open(silent).await.unwrap();
        let client = database.client().await;
        client.batch_execute("UPDATE instance SET seen_at = seen_at - interval '1 minute'").await.unwrap();

        // The first attempt may find the holder ended but not gone; a service repeats the attempt.
        let attempt = async || Postgres::open(Options { pooler, ..database.options("here") }).await.ok();
        let second = until("the holder to be ended", attempt).await;

        held(Postgres::open(Options { pooler, dead_after: HOUR, ..database.options("here") }).await);
        if !pooler {
            let lost = tokio::time::timeout(scaled(LIMIT), first.instance_id_taken_over())
                .await
                .expect("the loss is reported");
            assert_eq!(lost.instance, "here");
        }
        second.close().await.unwrap();
    }
}

#[tokio::test]
async fn late_heartbeat_behind_a_pooler_reports_the_lost_instance_id() {
    let database = Database::migrated().await;
    let options = Options { pooler: true, heartbeat_interval: Duration::from_millis(200), ..database.options("here") };
    let first = Postgres::open(options).await.unwrap();
    let client = database.client().await;

    client.batch_execute("UPDATE instance SET session = gen_random_uuid(), seen_at = clock_timestamp()").await.unwrap();

    let lost = tokio::time::timeout(scaled(LIMIT), first.instance_id_taken_over()).await.expect("the loss is reported");
    assert_eq!(lost.instance, "here");
}

#[tokio::test]
async fn holder_reacquires_its_instance_id_after_its_connection_broke() {
    let database = Database::migrated().await;
    let proxy = Proxy::to(&database.url).await;
    let options = Options {
        url: proxy.url(&database.url).into(),
        heartbeat_interval: Duration::from_millis(100),
        ..database.options("here")
    };
    let first = Postgres::open(options).await.unwrap();
    let client = database.client().await;
    let backend = async || client.query_one("SELECT backend FROM instance", &[]).await.unwrap().get::<_, i32>(0);
    let before = backend().await;

    proxy.down();
    proxy.up();

    until("another session to hold the instance id", async || (backend().await != before).then_some(())).await;
    held(Postgres::open(Options { dead_after: HOUR, ..database.options("here") }).await);
    let lost = tokio::time::timeout(Duration::from_millis(50), first.instance_id_taken_over()).await;
    assert!(lost.is_err(), "no other process had it: {lost:?}");
}

#[tokio::test]
async fn instance_id_is_not_lost_to_a_session_that_belongs_to_no_process() {
    let database = Database::migrated().await;
    let options = Options { heartbeat_interval: Duration::from_millis(100), ..database.options("here") };
    let first = Postgres::open(options).await.unwrap();
    let client = database.client().await;
    let backend = async || client.query_one("SELECT backend FROM instance", &[]).await.unwrap().get::<_, i32>(0);
    let before = backend().await;

    // As a connection of the process that broke after the server had given it the lock, before it wrote its row.
    let orphan = database.client().await;
    let (took, ()) = tokio::join!(orphan.batch_execute(LOCK), async {
        let waits = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
             AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
        until("the other session to wait", async || client.query_opt(waits, &[]).await.unwrap()).await;
        client.execute("SELECT pg_terminate_backend($1)", &[&before]).await.unwrap();
    });
    took.unwrap();

    let lost = tokio::time::timeout(Duration::from_secs(3), first.instance_id_taken_over()).await;
    assert!(lost.is_err(), "no other process has the instance id: {lost:?}");
    orphan.batch_execute("SELECT pg_advisory_unlock_all()").await.unwrap();
    until("the process to hold its instance id again", async || (backend().await != before).then_some(())).await;
}

/// Takes the lock of the instance id "here" once it is free.
const LOCK: &str = "SELECT pg_advisory_lock(hashtextextended('posthaste:public:here', 0))";
