//! Consumer groups: messages are read with `read_committed`, in order per topic partition, and acknowledged explicitly.
use std::time::Duration;

use async_trait::async_trait;

use super::record::{Position, Record};
use crate::error::Error;

/// A message as a group member receives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerRecord {
    /// Topic position of the message.
    pub position: Position,
    /// Key, headers and value.
    pub record: Record,
}

/// Consumer lag of a group in one topic partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lag {
    /// Full name of the topic.
    pub topic: String,
    /// Partition of the topic.
    pub partition: u32,
    /// Number of messages not yet acknowledged.
    pub messages: u64,
    /// How long the oldest unacknowledged message has waited in the topic. Where the broker does not know when the message arrived, an estimate that
    /// is at most the age of its change.
    pub age: Duration,
}

/// Result of an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckOutcome {
    /// All its messages are acknowledged.
    Complete,
    /// Messages of partitions that the member has lost since their delivery are not acknowledged: the partition's next member receives them
    /// again. The others are acknowledged, and the member keeps its remaining partitions.
    PartitionsLost,
}

/// One member of a consumer group. A member that is dropped is replaced by another, which starts after the last acknowledged message.
#[async_trait]
pub trait GroupMember: Send + Sync {
    /// Returns at most `limit` next messages of this member's partitions and waits at most `timeout` for the first one.
    /// A message is delivered once until [`GroupMember::rewind`] is called or another member continues. Cancel-safe if the caller that
    /// drops the call then calls `rewind`. One call at a time.
    async fn poll(&self, limit: u32, timeout: Duration) -> Result<Vec<ConsumerRecord>, Error>;

    /// Acknowledges messages: the group continues after these positions, also after a restart. Of several positions of one partition
    /// the largest counts.
    async fn acknowledge(&self, positions: &[Position]) -> Result<AckOutcome, Error>;

    /// Makes the next poll begin after the last acknowledged message.
    async fn rewind(&self) -> Result<(), Error>;

    /// Delivers nothing of this topic partition until `resume_after` has passed by the runtime's clock; delivery then continues at
    /// this position. Does nothing for a partition that the member has lost.
    async fn pause(&self, from: &Position, resume_after: Duration) -> Result<(), Error>;

    /// Returns the group's lag in each topic partition of this member.
    async fn lag(&self) -> Result<Vec<Lag>, Error>;
}

/// Creates group members; a restarted consumer actor joins again.
#[async_trait]
pub trait ConsumerGroups: Send + Sync {
    /// Joins `group` for all of `topics`. `member` (from 0) and `members` divide the partitions where the backend does not assign them itself.
    async fn join(
        &self,
        group: &str,
        topics: &[String],
        member: u32,
        members: u32,
    ) -> Result<std::sync::Arc<dyn GroupMember>, Error>;

    /// Makes a group that has no offset in a partition of these topics begin at its end. Creates topics that are missing, where the
    /// adapter may create topics. The group must have no member. Idempotent: an offset that was set stays.
    async fn begin_at_end(&self, group: &str, topics: &[String]) -> Result<(), Error>;

    /// Keeps the offsets of a group without members where the backend would delete them, or the records from them on, after the group has been
    /// absent for some time. Offsets stay as they are, and partitions without one get none. Idempotent; by default it does nothing.
    async fn keep_offsets(&self, _group: &str, _topics: &[String]) -> Result<(), Error> {
        Ok(())
    }

    /// Whether a group gives the partitions of a member that fails to its other members, in this process or another one. By default each member
    /// keeps those of its number.
    fn reassigns_partitions(&self) -> bool {
        false
    }
}
