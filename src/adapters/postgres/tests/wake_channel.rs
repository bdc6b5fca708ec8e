//! Wake-ups between instances by NOTIFY and LISTEN.
use std::sync::Arc;
use std::time::Duration;

use ports::partitions::PartitionNo;
use ports::partitions::wake::{WakeChannel, WakeUp};
use postgres::{Options, Postgres};
use telemetry::Metrics;

use crate::proxy::Proxy;
use crate::support::{Database, until};

#[tokio::test]
async fn wake_ups_reach_the_other_instances_and_not_the_sender() {
    let database = Database::migrated().await;
    let (a, b) = (database.store("a").await, database.store("b").await);

    // A wake-up sent before the other instance listens is lost, so they are repeated.
    let mut received = Vec::new();
    until("b to receive both", async || {
        a.notify(WakeUp::Due(PartitionNo(1)));
        a.notify(WakeUp::Free(PartitionNo(3)));
        if let Ok(wake_ups) = tokio::time::timeout(Duration::from_millis(100), b.notified()).await {
            received.extend(wake_ups);
        }
        (received.contains(&WakeUp::Due(PartitionNo(1))) && received.contains(&WakeUp::Free(PartitionNo(3))))
            .then_some(())
    })
    .await;

    assert!(
        tokio::time::timeout(Duration::from_millis(100), a.notified()).await.is_err(),
        "an instance does not receive its own wake-ups"
    );
}

#[tokio::test]
async fn listener_reconnects_after_its_session_ended() {
    let database = Database::migrated().await;
    let (a, b) = (database.store("a").await, database.store("b").await);
    let text = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'posthaste wakes%'";
    let client = database.client().await;
    until("the sessions of both listeners to be ended", async || {
        let ended = client.query(text, &[]).await.unwrap();
        (ended.len() == 2 && ended.iter().all(|row| row.get(0))).then_some(())
    })
    .await;

    until("b to receive again", async || {
        a.notify(WakeUp::Due(PartitionNo(2)));
        tokio::time::timeout(Duration::from_millis(100), b.notified()).await.ok()
    })
    .await;
}

#[tokio::test]
async fn metric_shows_whether_the_listener_is_up() {
    let database = Database::migrated().await;
    let proxy = Proxy::to(&database.url).await;
    let metrics = Arc::new(Metrics::new());
    let url = proxy.url(&database.url).into();
    let options = Options { url, metrics: Some(Arc::clone(&metrics)), ..database.options("a") };
    let _store = Postgres::open(options).await.unwrap();
    let becomes = async |value: i64| {
        until("the gauge", async || (metrics.outbox_wake_listener_up.get() == value).then_some(())).await;
    };

    becomes(1).await;
    proxy.down();
    becomes(0).await;
    proxy.up();
    becomes(1).await;
    assert_eq!(metrics.outbox_wake_listener_up.get(), 1);
}

#[tokio::test]
async fn no_wake_ups_are_sent_behind_a_pooler() {
    let database = Database::migrated().await;
    let options = |name: &str| Options { pooler: true, ..database.options(name) };
    let (a, b) = (Postgres::open(options("a")).await.unwrap(), Postgres::open(options("b")).await.unwrap());

    a.notify(WakeUp::Due(PartitionNo(1)));

    assert!(tokio::time::timeout(Duration::from_millis(200), b.notified()).await.is_err());
}

#[tokio::test]
async fn transaction_that_publishes_wakes_the_relay_whatever_was_before_its_event() {
    let database = Database::migrated().await;
    let client = database.client().await;
    let cases = [
        "SELECT posthaste.publish('t', 'k', 't', 'x'::text)",
        "BEGIN; CREATE TEMPORARY TABLE own (x integer); SELECT posthaste.publish('t', 'k', 't', 'x'::text); COMMIT",
        "BEGIN; SAVEPOINT s; SELECT posthaste.publish('t', 'k', 't', 'x'::text); ROLLBACK TO s; SELECT posthaste.publish('t', 'k', 't', 'x'::text);
           COMMIT",
        "BEGIN; SELECT posthaste.publish('t', 'k', 't', 'x'::text); SAVEPOINT s; SELECT posthaste.publish('t', 'k', 't', 'x'::text); ROLLBACK TO s;
           COMMIT",
        "BEGIN; CREATE TEMPORARY TABLE other (x integer); SAVEPOINT s; SELECT posthaste.publish('t', 'k', 't', 'x'::text); ROLLBACK TO s;
           SELECT posthaste.publish('t', 'l', 't', 'x'::text); COMMIT",
    ];
    for case in cases {
        client.batch_execute("SELECT setval('outbox_wake_time', 0)").await.unwrap();

        client.batch_execute(case).await.unwrap();

        let woken: i64 = client.query_one("SELECT last_value FROM outbox_wake_time", &[]).await.unwrap().get(0);
        assert!(woken > 0, "{case}");
    }
    let many = "SELECT count(posthaste.publish('t', 'k' || n, 't', 'x'::text)) FROM generate_series(1, 20) n";
    client.batch_execute(&format!("DELETE FROM outbox_sequence; {many}")).await.unwrap();
    let waking = "SELECT count(*) FROM outbox_sequence WHERE wakes";
    let waking: i64 = client.query_one(waking, &[]).await.unwrap().get(0);
    assert!((1..=2).contains(&waking), "{waking} of 20 events of a transaction wake");
}
