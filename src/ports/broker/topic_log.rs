//! A topic log for readers outside the service: it reads all partitions of a topic from given offsets, waits for new records, and keeps the
//! offsets that consumer groups have committed.
//!
//! The embedded broker implements it. Kafka's own clients read Kafka.
use ::outbox::OffsetCommitMode;
use async_trait::async_trait;

use super::consumer_groups::ConsumerRecord;
use super::topics::TopicView;
use crate::error::Error;

/// A partition with the offset of the next record to read from it.
pub type NextOffset = (u32, u64);

/// Bounds of one read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadLimits {
    /// Most records that the read returns.
    pub records: u32,
    /// Bytes of values after which the read ends; the first record is returned whatever its size.
    pub bytes: usize,
}

/// Result of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextRecords {
    /// The next records, in offset order within each partition and without a gap; none at the end of the topic.
    Found(Vec<ConsumerRecord>),
    /// Retention has deleted records at or after one of the offsets.
    Removed,
}

/// Result of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OffsetCommitOutcome {
    /// The offsets are durable.
    Committed,
    /// Nothing was changed: this partition ends before the requested offset.
    BeyondEnd {
        /// Partition of the topic.
        partition: u32,
        /// Its next offset to be written.
        end: u64,
    },
    /// Nothing was changed: the log keeps the offsets of the maximum number of groups already, and all of them are in use.
    TooManyGroups(u32),
}

/// Whether the log accepts records of the topics that a client names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopicAdmission {
    /// All of them; one that does not exist is created with its first record.
    Admitted,
    /// None: the log has this many topics, and takes no more from clients.
    TooManyTopics(usize),
}

/// The log of a broker that serves readers itself.
#[async_trait]
pub trait TopicLog: Send + Sync {
    /// Returns a topic with the offsets that each partition keeps; `None` if there is no such topic.
    async fn view(&self, topic: &str) -> Result<Option<TopicView>, Error>;

    /// Counts those of the topics that do not exist yet against the limit of topics, all of them or none, until
    /// [`TopicLog::release_topics`]. Topics without a record no longer count after a restart.
    async fn admit_topics(&self, names: &[&str]) -> Result<TopicAdmission, Error>;

    /// Reverses one call of [`TopicLog::admit_topics`] for these topics, because no record was written to them. A topic that another call has
    /// admitted stays admitted.
    fn release_topics(&self, names: &[&str]);

    /// Lists the names of all topics in their order.
    async fn topic_names(&self) -> Result<Vec<String>, Error>;

    /// Reads the next records of several partitions. Partitions whose next record waits longest come first, and each gets a share of the
    /// limit, so that a busy partition does not starve the others.
    async fn read_next(&self, topic: &str, from: &[NextOffset], limits: ReadLimits) -> Result<NextRecords, Error>;

    /// Waits until a partition has a record at or after its offset. It may miss a record that another process appends, so the caller
    /// also reads at intervals. Cancel-safe.
    async fn wait_for_records(&self, topic: &str, from: &[NextOffset]) -> Result<(), Error>;

    /// Reads the offsets at which a group continues, in partition order; `None` where it has never read.
    async fn committed(&self, group: &str, topic: &str) -> Result<Vec<Option<u64>>, Error>;

    /// Registers a group as a reader of a topic: from now on retention keeps the records that it has not committed, while the group is seen
    /// within the retention time. A new group begins at the first record that is kept. Idempotent.
    async fn register(&self, group: &str, topic: &str) -> Result<OffsetCommitOutcome, Error>;

    /// Commits offsets of a group, all of them or none, and registers the group. Partitions that are not named keep theirs. Idempotent.
    async fn commit(
        &self,
        group: &str,
        topic: &str,
        offsets: &[NextOffset],
        mode: OffsetCommitMode,
    ) -> Result<OffsetCommitOutcome, Error>;
}
