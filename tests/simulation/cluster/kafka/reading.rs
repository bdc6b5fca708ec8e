//! Reads of the simulated brokers: what consumers receive of a topic, up to its last stable offset and without the records of aborted transactions.
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ports::broker::Position;
use ports::broker::consumer_groups::ConsumerRecord;
use tokio::time::{Instant, sleep_until};

use crate::cluster::flaw::Flaw;
use crate::cluster::kafka::broker::SimulatedKafka;
use crate::cluster::kafka::groups::coordinator::{TopicPartition, partitions_of};
use crate::cluster::kafka::log::{Content, LogId, Logs, TransactionStatus};

/// Most records of one partition in one reply.
const FETCH_MAX: usize = 20;
/// Under [`Flaw::CommittedRecordsLost`], one of so many records of each partition is lost.
const LOST_RECORDS: u64 = 7;

/// The records of each partition of a reply, and the offset after the last one that was read.
pub type Fetched = BTreeMap<TopicPartition, (Vec<ConsumerRecord>, u64)>;

impl SimulatedKafka {
    /// The records of a topic that a `read_committed` consumer receives, partition by partition.
    pub fn read(&self, topic: &str) -> Vec<ConsumerRecord> {
        self.with_logs(|logs, now| {
            let all = |one| self.visible(logs, &one, 0, now, usize::MAX).0;
            partitions_of([&Arc::from(topic)]).flat_map(all).collect()
        })
    }

    /// The records from these offsets on. Waits at most `wait` until there are any.
    pub async fn fetch(&self, from: &BTreeMap<TopicPartition, u64>, wait: Duration) -> Fetched {
        let deadline = Instant::now() + wait;
        loop {
            let changed = self.changed().notified();
            let (fetched, next) = self.with_logs(|logs, now| (self.fetch_now(logs, from, now), logs.next_marker(now)));
            if !fetched.is_empty() || Instant::now() >= deadline {
                return fetched;
            }
            // Cancellation: nothing was taken; both futures only end the wait.
            tokio::select! {
                () = changed => {}
                () = sleep_until(next.map_or(deadline, |next| next.min(deadline))) => {}
            }
        }
    }

    fn fetch_now(&self, logs: &Logs, from: &BTreeMap<TopicPartition, u64>, now: Instant) -> Fetched {
        let read = from.iter().map(|(partition, offset)| {
            let fetched = match self.flaw() {
                Some(Flaw::UncommittedRecordsDelivered) => Self::uncommitted(logs, partition, *offset),
                _ => self.visible(logs, partition, *offset, now, FETCH_MAX),
            };
            (partition.clone(), fetched)
        });
        read.filter(|(partition, (_, next))| *next > from[partition]).collect()
    }

    /// The number of visible records of a partition from an offset on.
    pub fn visible_from(&self, partition: &TopicPartition, offset: u64) -> u64 {
        self.with_logs(|logs, now| self.visible(logs, partition, offset, now, usize::MAX).0.len() as u64)
    }

    /// The end of a partition.
    pub fn end(&self, (topic, partition): &TopicPartition) -> u64 {
        self.with_logs(|logs, _| logs.written(&LogId::Topic(Arc::clone(topic), *partition)).count() as u64)
    }

    fn visible(
        &self,
        logs: &Logs,
        (topic, partition): &TopicPartition,
        from: u64,
        now: Instant,
        limit: usize,
    ) -> (Vec<ConsumerRecord>, u64) {
        let log = LogId::Topic(Arc::clone(topic), *partition);
        let stable = logs.stable(&log, now).skip(from as usize).take(limit);
        let is_visible = |status| {
            status == TransactionStatus::Committed
                || (status == TransactionStatus::Aborted && self.flaw() == Some(Flaw::AbortedRecordsVisible))
        };
        let (mut messages, mut next) = (Vec::new(), from);
        let is_lost = |offset| self.flaw() == Some(Flaw::CommittedRecordsLost) && offset % LOST_RECORDS == 1;
        for (offset, content, status) in stable {
            next = offset + 1;
            if is_visible(status) && !is_lost(offset) {
                messages.extend(consumer_record(topic, *partition, offset, content));
            }
        }
        (messages, next)
    }

    /// The records that a consumer without `read_committed` receives.
    fn uncommitted(logs: &Logs, (topic, partition): &TopicPartition, from: u64) -> (Vec<ConsumerRecord>, u64) {
        let log = LogId::Topic(Arc::clone(topic), *partition);
        let written: Vec<(u64, &Content)> = logs.written(&log).skip(from as usize).take(FETCH_MAX).collect();
        let messages =
            written.iter().filter_map(|(offset, content)| consumer_record(topic, *partition, *offset, content));
        (messages.collect(), from + written.len() as u64)
    }
}

fn consumer_record(topic: &Arc<str>, partition: u32, offset: u64, content: &Content) -> Option<ConsumerRecord> {
    let Content::Event(record) = content else { return None };
    let position = Position { topic: Arc::clone(topic), partition, offset };
    Some(ConsumerRecord { position, record: record.clone() })
}
