//! A group that comes later than the retention of its topic: the log names the records that it did not read.
use std::sync::Arc;
use std::time::{Duration, Instant};

use kit::wait::{scaled, until_answered};
use ports::broker::consumer_groups::{AckOutcome, ConsumerGroups, GroupMember};
use rdkafka::admin::AdminOptions;
use rdkafka::{Offset, TopicPartitionList};

use super::{POLL_TIMEOUT, acknowledged, long_sessions, polled, positions};
use crate::support::{Installation, TIMEOUT, admin, log_reports};

/// A report follows with the next statistics of the client, which come twice a second.
const REPORTED_MAX: Duration = Duration::from_secs(2);

/// Where the reports of a topic say that the group had read to, and where it continues.
fn reports(topic: &str) -> Vec<(String, String)> {
    let reports = log_reports::reports("unread_records_removed", "topic", topic);
    reports.iter().map(|report| (report["read_until"].clone(), report["offset"].clone())).collect()
}

/// Deletes the records before this offset of a partition.
async fn remove_before(topic: &str, partition: u32, offset: u64) {
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(topic, partition as i32, Offset::Offset(offset as i64)).expect("a legal offset");
    let removed = admin().delete_records(&list, &AdminOptions::new()).await.expect("removed");
    removed.elements().iter().for_each(|element| element.error().expect("removed"));
}

async fn join(installation: &Installation) -> Arc<dyn GroupMember> {
    let topics = [installation.kafka.options().topic("order.events")];
    until_answered(TIMEOUT, || installation.kafka.join("removed", &topics, 0, 1)).await.expect("joined")
}

/// Reads and acknowledges `count` messages; returns their offsets once a report about them would have come.
async fn consume(member: &Arc<dyn GroupMember>, count: usize) -> Vec<u64> {
    let (mut read, started) = (Vec::new(), Instant::now());
    while read.len() < count {
        let some = member.poll((count - read.len()) as u32, POLL_TIMEOUT).await.expect("polled");
        let positions = positions(&some);
        assert_eq!(acknowledged(member, &positions).await, AckOutcome::Complete);
        read.extend(positions.iter().map(|position| position.offset));
        assert!(started.elapsed() < scaled(TIMEOUT), "{} of {count} came", read.len());
    }
    let read_at = Instant::now();
    while read_at.elapsed() < REPORTED_MAX {
        member.poll(1, POLL_TIMEOUT).await.expect("polled");
    }
    read
}

#[tokio::test]
async fn records_that_were_removed_before_their_group_read_them_are_reported() {
    log_reports::collect();
    let installation = long_sessions(|_| {}).await;
    let topic = installation.kafka.options().topic("order.events");
    let mut sent = Vec::new();
    for value in 0..6 {
        // A transaction each, so that the record after each one is its marker.
        sent.extend(installation.append(installation.records(&[("a", &value.to_string())])).await);
    }
    let (partition, offsets) = (sent[0].partition, sent.iter().map(|position| position.offset).collect::<Vec<_>>());
    assert_eq!(consume(&join(&installation).await, 1).await, offsets[..1]);
    assert_eq!(reports(&topic), [], "a group without an offset has lost nothing");

    remove_before(&topic, partition, offsets[1]).await;
    assert_eq!(consume(&join(&installation).await, 1).await, offsets[1..2]);
    assert_eq!(reports(&topic), [], "only the marker of the transaction that it has read is gone");

    remove_before(&topic, partition, offsets[4]).await;
    let started = Instant::now();
    // A coordinator that does not return the group's offset within a second leaves it unknown to a member, which then reports nothing.
    while reports(&topic).is_empty() {
        let member = join(&installation).await;
        let next = polled(&member, 2).await;
        assert_eq!(next.iter().map(|message| message.position.offset).collect::<Vec<_>>(), offsets[4..]);
        let read_at = Instant::now();
        while reports(&topic).is_empty() && read_at.elapsed() < scaled(REPORTED_MAX) {
            member.poll(1, POLL_TIMEOUT).await.expect("polled");
        }
        assert!(started.elapsed() < scaled(TIMEOUT), "nothing is reported");
    }
    assert_eq!(reports(&topic), [((offsets[1] + 1).to_string(), offsets[4].to_string())]);
}
