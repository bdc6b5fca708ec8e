//! The lag of a member: how long messages have waited in the topic, not how old their changes are.
use std::time::{Duration, Instant};

use domain::Timestamp;
use kit::wait::scaled;
use ports::broker::Record;

use super::{acknowledged, assigned_partitions, fill, join, long_sessions, polled, positions};
use crate::support::TIMEOUT;

/// The relay sends old changes after an outage of the broker.
#[tokio::test]
async fn record_of_an_old_change_does_not_make_a_member_late() {
    let installation = long_sessions(|_| {}).await;
    let (member, started) = (join(&installation).await, Instant::now());
    let now = installation.kafka.options().clock.wall();
    let old = Timestamp::from_millis(now.millis() - 3_600_000);
    loop {
        member.lag().await.expect("read");
        installation.append(vec![Record { timestamp: old, ..installation.factory.record("a", "old") }]).await;
        let messages = polled(&member, 1).await;
        let age = member.lag().await.expect("read").iter().map(|lag| lag.age).max().expect("a partition");
        if age < Duration::from_secs(600) {
            return;
        }
        // The member does not know yet that it has read everything: the client reports the end of the log twice a second.
        assert!(started.elapsed() < scaled(TIMEOUT), "the member is {age:?} late");
        acknowledged(&member, &positions(&messages)).await;
    }
}

/// Until its first fetch, the client knows the end of the log from the time before another member had the partition.
#[tokio::test]
async fn partition_that_comes_back_is_as_late_as_its_oldest_message() {
    let installation = long_sessions(|_| {}).await;
    fill(&installation, 0, 1).await;
    let first = join(&installation).await;
    let read = polled(&first, 8).await;
    acknowledged(&first, &positions(&read)).await;
    let second = join(&installation).await;
    let started = Instant::now();
    while (assigned_partitions(&first).await, assigned_partitions(&second).await) != (1, 1) {
        assert!(started.elapsed() < scaled(TIMEOUT), "the partitions were never rebalanced");
    }
    let kept = first.lag().await.expect("read")[0].partition;
    let old = Timestamp::from_millis(installation.kafka.options().clock.wall().millis() - 3_600_000);
    let record = |key: &str| Record { timestamp: old, ..installation.factory.record(key, "old") };
    installation.append(["a", "b", "c", "d", "e", "f", "g", "h"].map(record).into()).await;
    polled(&second, 1).await;

    drop(second);

    let started = Instant::now();
    loop {
        let lags = first.lag().await.expect("read");
        if let Some(lag) = lags.iter().find(|lag| lag.partition != kept && !lag.age.is_zero()) {
            return assert!(lag.age >= Duration::from_secs(3_600), "{lag:?}");
        }
        assert!(started.elapsed() < scaled(TIMEOUT), "the partition never came back");
    }
}
