//! Group members that read retry topics too: the group divides each kind of topic, and a member reads both as one.
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kit::wait::{scaled, until_answered};
use outbox::topics::{consumed_topics, retry_stage};
use ports::broker::Record;
use ports::broker::consumer_groups::{AckOutcome, ConsumerGroups, GroupMember};

use super::{POLL_TIMEOUT, acknowledged, group_id, long_sessions, polled, positions};
use crate::support::TIMEOUT;

/// How many partitions a member has of the events' topic and of its retry topics.
async fn shares(member: &Arc<dyn GroupMember>) -> (usize, usize) {
    let lags = member.lag().await.expect("read");
    let of_retry_topics = lags.iter().filter(|lag| retry_stage(&lag.topic).is_some()).count();
    (lags.len() - of_retry_topics, of_retry_topics)
}

/// Kafka's assignor balances all topics of a member as one number: one member could get each partition of the events' topic.
#[tokio::test]
async fn two_members_share_the_events_and_the_retries() {
    let installation = long_sessions(|options| options.topic_partitions = 6).await;
    let topics = consumed_topics(&installation.kafka.options().topic("order.events"));
    let group = group_id(&installation);
    let join = || until_answered(TIMEOUT, || installation.kafka.join(&group, &topics, 0, 1));
    let first = join().await.expect("joined");
    let started = Instant::now();
    while shares(&first).await != (6, 24) {
        assert!(started.elapsed() < scaled(TIMEOUT), "the first member has {:?}", shares(&first).await);
        first.poll(1, POLL_TIMEOUT).await.expect("polled");
    }

    let second = join().await.expect("joined");
    while (shares(&first).await, shares(&second).await) != ((3, 12), (3, 12)) {
        let shares = (shares(&first).await, shares(&second).await);
        assert!(started.elapsed() < scaled(TIMEOUT * 2), "the members have {shares:?}");
        second.poll(1, POLL_TIMEOUT).await.expect("polled");
    }
}

#[tokio::test]
async fn member_reads_events_and_retries_and_acknowledges_both_at_once() {
    let installation = long_sessions(|_| {}).await;
    let topics = consumed_topics(&installation.kafka.options().topic("order.events"));
    let group = group_id(&installation);
    let join = || until_answered(TIMEOUT, || installation.kafka.join(&group, &topics, 0, 1));
    let member = join().await.expect("joined");
    let event = installation.factory.record("a", "event");
    let retry = Record { topic: topics[1].as_str().into(), ..installation.factory.record("b", "retry") };

    installation.append(vec![event, retry]).await;
    let both = polled(&member, 2).await;
    let read: BTreeSet<String> = both.iter().map(|message| message.position.topic.to_string()).collect();
    assert_eq!(read, BTreeSet::from([topics[0].clone(), topics[1].clone()]));
    member.rewind().await.expect("rewound");
    let mut again = polled(&member, 2).await;
    again.sort_by(|left, right| left.position.cmp(&right.position));
    let paused = again[1].position.clone();
    member.pause(&paused, Duration::from_millis(1)).await.expect("paused");
    assert_eq!(positions(&polled(&member, 1).await), [paused], "only the partition of the pause is delivered again");
    assert_eq!(acknowledged(&member, &positions(&again)).await, AckOutcome::Complete);
    drop(member);

    installation.append(vec![installation.factory.record("a", "later")]).await;
    let next = polled(&join().await.expect("joined"), 1).await;
    assert_eq!(next[0].record.value, installation.factory.record("a", "later").value, "the others were acknowledged");
}
