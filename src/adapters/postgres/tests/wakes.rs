//! Instances wake each other.
use std::time::Duration;

use ports::partitions::PartitionNo;
use ports::wake::WakeChannel;
use postgres::{Options, Postgres};

use crate::support::{Database, until};

#[tokio::test]
async fn what_one_tells_the_others_hear_and_it_does_not() {
    let database = Database::migrated().await;
    let (a, b) = (database.store("a").await, database.store("b").await);

    // Whoever has just begun to listen may have missed the first hint: it is a hint and nothing more.
    let mut heard = Vec::new();
    until("b to hear of both", async || {
        a.notify(PartitionNo(1));
        a.notify(PartitionNo(3));
        if let Ok(told) = tokio::time::timeout(Duration::from_millis(100), b.notified()).await {
            heard.extend(told);
        }
        (heard.contains(&PartitionNo(1)) && heard.contains(&PartitionNo(3))).then_some(())
    })
    .await;

    assert!(tokio::time::timeout(Duration::from_millis(100), a.notified()).await.is_err(), "nobody hears himself");
}

#[tokio::test]
async fn a_listener_that_was_cut_off_listens_again() {
    let database = Database::migrated().await;
    let (a, b) = (database.store("a").await, database.store("b").await);
    let text = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'posthaste wakes%'";
    database.client().await.batch_execute(text).await.unwrap();

    until("b to hear again", async || {
        a.notify(PartitionNo(2));
        tokio::time::timeout(Duration::from_millis(100), b.notified()).await.ok()
    })
    .await;
}

#[tokio::test]
async fn behind_a_pooler_nothing_is_told() {
    let database = Database::migrated().await;
    let options = |name: &str| Options { pooler: true, ..database.options(name) };
    let (a, b) = (Postgres::open(options("a")).await.unwrap(), Postgres::open(options("b")).await.unwrap());

    a.notify(PartitionNo(1));

    assert!(tokio::time::timeout(Duration::from_millis(200), b.notified()).await.is_err());
}
