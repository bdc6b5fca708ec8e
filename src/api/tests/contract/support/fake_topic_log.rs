//! A topic with two partitions: the first one keeps its records from offset 5 on, the other one is empty.
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicU32, AtomicU64};

use app::port_types::OffsetCommitMode;
use async_trait::async_trait;
use domain::Timestamp;
use parking_lot::Mutex;
use ports::Error;
use ports::broker::consumer_groups::ConsumerRecord;
use ports::broker::topic_log::{NextOffset, NextRecords, OffsetCommitOutcome, ReadLimits, TopicAdmission, TopicLog};
use ports::broker::topics::TopicView;
use ports::broker::{Position, Record};

/// The only topic of the log.
pub const TOPIC: &str = "t";
/// The kept offsets of its first partition.
const KEPT: std::ops::Range<u64> = 5..8;

#[derive(Default)]
pub struct FakeTopicLog {
    /// Number of times that any group was registered.
    pub registrations: AtomicU32,
    /// Topics whose admission was released.
    pub released: Mutex<Vec<String>>,
    /// Records that were appended behind the kept ones, and that the group `busy` has read.
    appended: AtomicU64,
}

fn consumer_record(offset: u64) -> ConsumerRecord {
    let record = Record {
        topic: TOPIC.into(),
        key: "k".into(),
        headers: [("ce_type", "X")].into_iter().collect(),
        value: format!("{{\"n\":{offset}}}").into_bytes().into(),
        timestamp: Timestamp::from_millis(1_000),
    };
    ConsumerRecord { position: Position { topic: TOPIC.into(), partition: 0, offset }, record }
}

#[async_trait]
impl TopicLog for FakeTopicLog {
    async fn view(&self, topic: &str) -> Result<Option<TopicView>, Error> {
        let partitions = vec![KEPT.start..KEPT.end + self.appended.load(SeqCst), 0..0];
        Ok((topic == TOPIC).then(|| TopicView { name: topic.to_owned(), partitions }))
    }
    async fn admit_topics(&self, names: &[&str]) -> Result<TopicAdmission, Error> {
        let is_full = names.contains(&"one-too-many");
        Ok(if is_full { TopicAdmission::TooManyTopics(1_000) } else { TopicAdmission::Admitted })
    }
    fn release_topics(&self, names: &[&str]) {
        self.released.lock().extend(names.iter().map(|name| (*name).to_owned()));
    }
    async fn topic_names(&self) -> Result<Vec<String>, Error> {
        Ok(vec![TOPIC.to_owned()])
    }
    async fn read_next(&self, _: &str, from: &[NextOffset], limits: ReadLimits) -> Result<NextRecords, Error> {
        let next = from.iter().find(|(partition, _)| *partition == 0).map_or(KEPT.end, |(_, next)| *next);
        Ok(NextRecords::Found((next..KEPT.end).take(limits.records as usize).map(consumer_record).collect()))
    }
    async fn wait_for_records(&self, _: &str, _: &[NextOffset]) -> Result<(), Error> {
        std::future::pending().await
    }
    async fn committed(&self, group: &str, _: &str) -> Result<Vec<Option<u64>>, Error> {
        let next = match group {
            "late" => 2,
            "busy" => KEPT.end + 1 + self.appended.fetch_add(1, SeqCst),
            _ => 7,
        };
        Ok(vec![Some(next), None])
    }
    async fn register(&self, _: &str, _: &str) -> Result<OffsetCommitOutcome, Error> {
        self.registrations.fetch_add(1, SeqCst);
        Ok(OffsetCommitOutcome::Committed)
    }
    async fn commit(
        &self,
        group: &str,
        _: &str,
        offsets: &[NextOffset],
        _: OffsetCommitMode,
    ) -> Result<OffsetCommitOutcome, Error> {
        let beyond = offsets.iter().find(|(partition, next)| *partition == 0 && *next > KEPT.end);
        Ok(match beyond {
            Some((partition, _)) => OffsetCommitOutcome::BeyondEnd { partition: *partition, end: KEPT.end },
            None if group == "one-too-many" => OffsetCommitOutcome::TooManyGroups(1_000),
            None => OffsetCommitOutcome::Committed,
        })
    }
}
