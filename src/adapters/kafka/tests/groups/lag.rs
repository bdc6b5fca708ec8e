//! The lag of a member: how long messages have waited in the topic, not how old their changes are.
use std::time::{Duration, Instant};

use domain::Timestamp;
use kit::wait::scaled;
use ports::broker::Record;

use super::{acknowledged, join, long_sessions, polled, positions};
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
