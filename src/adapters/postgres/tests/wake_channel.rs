//! Wake-ups between instances by NOTIFY and LISTEN.
use std::time::Duration;

use ports::partitions::PartitionNo;
use ports::partitions::wake::{WakeChannel, WakeUp};
use postgres::{Options, Postgres};

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
    database.client().await.batch_execute(text).await.unwrap();

    until("b to receive again", async || {
        a.notify(WakeUp::Due(PartitionNo(2)));
        tokio::time::timeout(Duration::from_millis(100), b.notified()).await.ok()
    })
    .await;
}

#[tokio::test]
async fn no_wake_ups_are_sent_behind_a_pooler() {
    let database = Database::migrated().await;
    let options = |name: &str| Options { pooler: true, ..database.options(name) };
    let (a, b) = (Postgres::open(options("a")).await.unwrap(), Postgres::open(options("b")).await.unwrap());

    a.notify(WakeUp::Due(PartitionNo(1)));

    assert!(tokio::time::timeout(Duration::from_millis(200), b.notified()).await.is_err());
}
