//! Helpers of the consumer groups' cases: members, records to consume, polls until nothing more is delivered.
use std::sync::Arc;
use std::time::{Duration, Instant};

use ports::broker::Position;
use ports::broker::consumer_groups::{ConsumerRecord, GroupMember};

use crate::backend::Backend;
use crate::conformance::fixture::backend::{Fixture, MINUTE};
use crate::conformance::fixture::broker::value_text;
use crate::murmur2::topic_partition;
use crate::wait::{pause, scaled, until_answered};

/// A poll of a broker that needs time may return nothing; this many in a row mean that no message is left.
const EMPTY_POLLS: u32 = 2;
/// Between two reads of a lag.
const PAUSE: Duration = Duration::from_millis(5);
/// Polls of each member in which a group must assign its partitions, where the broker is not slow.
const ASSIGNMENT_POLLS: u32 = 30;

impl<B: Backend> Fixture<'_, B> {
    pub(crate) async fn join(&self, group: &str) -> Arc<dyn GroupMember> {
        self.member(group, 0, 1).await
    }

    pub(crate) async fn member(&self, group: &str, member: u32, members: u32) -> Arc<dyn GroupMember> {
        let (groups, topics) = (self.backend.consumer_groups(), [self.topic().to_string()]);
        until_answered(MINUTE, || groups.join(group, &topics, member, members)).await.expect("joined")
    }

    /// Acknowledges messages, again while the broker is too slow to answer.
    pub(crate) async fn acknowledge(&self, member: &Arc<dyn GroupMember>, positions: &[Position]) {
        until_answered(MINUTE, || member.acknowledge(positions)).await.expect("acknowledged");
    }

    /// The group begins at the end of the topic.
    pub(super) async fn begin_at_end(&self, group: &str) {
        let (groups, topics) = (self.backend.consumer_groups(), [self.topic().to_string()]);
        until_answered(MINUTE, || groups.begin_at_end(group, &topics)).await.expect("the offsets are set");
    }

    /// Appends `rounds` records of each key, one of each key per round.
    pub(super) async fn append_rounds(&self, keys: &[&str], rounds: usize) {
        for round in 0..rounds {
            let records = keys.iter().map(|key| self.factory.record(key, &format!("{key}-{round:03}")));
            self.append(records.collect()).await;
        }
        self.backend.settle();
    }

    pub(super) async fn poll(&self, member: &Arc<dyn GroupMember>, limit: u32) -> Vec<ConsumerRecord> {
        member.poll(limit, self.backend.poll_timeout()).await.expect("the poll succeeds")
    }

    /// Polls until the members share all partitions: a backend that assigns them itself needs a moment, and redelivers
    /// messages that it delivered before.
    pub(super) async fn wait_for_assignment(&self, members: &[Arc<dyn GroupMember>]) {
        let (views, started) = (self.views().await, Instant::now());
        let partitions = views.iter().find(|view| view.name == *self.topic()).map(|view| view.partitions.len());
        for polls in 1.. {
            let mut shares = Vec::new();
            for member in members {
                assert_eq!(self.poll(member, 1).await, []);
                shares.push(member.lag().await.expect("the lag is read").len());
            }
            // A topic that its first record creates is assigned at once, by partition number.
            let complete = partitions.is_none_or(|partitions| shares.iter().sum::<usize>() == partitions);
            if complete && shares.iter().all(|share| *share > 0) {
                return;
            }
            let may_wait = polls < ASSIGNMENT_POLLS || started.elapsed() < self.delivery_max();
            assert!(may_wait, "the members did not share the partitions in {polls} polls");
        }
    }

    /// Polls until nothing more is delivered. A poll that returns nothing counts from the time at which the member has its partitions, and has
    /// received as many messages as the case expects: a busy broker may need longer than a poll for each of them.
    pub(crate) async fn poll_all(&self, member: &Arc<dyn GroupMember>, expected: usize) -> Vec<ConsumerRecord> {
        let (mut all, mut empty, started) = (Vec::new(), 0, Instant::now());
        while empty < EMPTY_POLLS || all.len() < expected && started.elapsed() < self.delivery_max() {
            let page = self.poll(member, 100).await;
            let is_waiting = page.is_empty() && !self.is_assigned(member).await;
            assert!(!is_waiting || started.elapsed() < scaled(MINUTE), "the member got no partition");
            empty = if page.is_empty() && !is_waiting { empty + 1 } else { 0 };
            all.extend(page);
            assert!(all.len() < 10_000, "messages are delivered without end");
        }
        all
    }

    /// Longest wait for messages that are there. A broker that delivers at once needs none.
    pub(super) fn delivery_max(&self) -> Duration {
        if self.backend.poll_timeout().is_zero() { Duration::ZERO } else { scaled(MINUTE) }
    }

    /// The unacknowledged messages of a member's partitions, as soon as there are as many as the case expects: a busy broker may report late what
    /// its client has not fetched.
    pub(crate) async fn lag_when(&self, member: &Arc<dyn GroupMember>, expected: u64) -> u64 {
        let started = Instant::now();
        loop {
            let messages: u64 = member.lag().await.expect("the lag is read").iter().map(|lag| lag.messages).sum();
            if messages == expected || started.elapsed() >= self.delivery_max() {
                return messages;
            }
            pause(PAUSE);
        }
    }

    /// Whether the group has assigned partitions to the member. A broker that delivers at once assigns them when the member joins, and a topic
    /// without records has none.
    async fn is_assigned(&self, member: &Arc<dyn GroupMember>) -> bool {
        self.backend.poll_timeout().is_zero() || !member.lag().await.expect("the lag is read").is_empty()
    }
}

pub(super) fn positions(messages: &[ConsumerRecord]) -> Vec<Position> {
    messages.iter().map(|message| message.position.clone()).collect()
}

pub(super) fn sorted_values(messages: &[ConsumerRecord]) -> Vec<String> {
    let mut values: Vec<String> = messages.iter().map(|message| value_text(&message.record)).collect();
    values.sort();
    values
}

/// Two keys that belong to different partitions of the topic.
pub(super) async fn keys_in_different_partitions<B: Backend>(fixture: &Fixture<'_, B>) -> [String; 2] {
    let views = fixture.views().await;
    let view = views.iter().find(|view| view.name == *fixture.topic());
    let partitions = view.map_or(2, |view| u32::try_from(view.partitions.len()).expect("few"));
    let partition = |key: &String| topic_partition(key.as_bytes(), partitions);
    let mut keys = (0..1_000).map(|number| format!("key-{number}"));
    let first = keys.next().expect("the range is not empty");
    let second = keys.find(|key| partition(key) != partition(&first)).expect("the topic has two partitions");
    [first, second]
}
