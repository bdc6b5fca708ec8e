//! Where consumed messages come from. `read_committed`, in order per topic partition, acknowledged by hand.
use std::time::Duration;

use async_trait::async_trait;

use crate::broker::{Position, Record};
use crate::error::Error;

/// One message in hand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Where it stands.
    pub position: Position,
    /// What it says.
    pub record: Record,
}

/// How far a group is behind in one topic partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lag {
    /// Which topic.
    pub topic: String,
    /// Which partition.
    pub partition: u32,
    /// Messages not yet acknowledged.
    pub messages: u64,
    /// Age of the oldest of them.
    pub age: Duration,
}

/// One member of a consumer group. A member that is dropped is replaced by another, which starts after the last acknowledged message.
#[async_trait]
pub trait GroupMember: Send + Sync {
    /// The next messages of the partitions this member has, at most `limit`, at most one wait of `patience` for the first.
    /// A message is handed out once until it is acknowledged or [`GroupMember::rewind`] is called. Cancel-safe: a dropped call loses nothing,
    /// because a caller that drops it rewinds.
    async fn poll(&self, limit: u32, patience: Duration) -> Result<Vec<Delivery>, Error>;

    /// Acknowledges: the group goes on after these positions, also after a restart. Positions of one partition may skip; the largest counts.
    async fn acknowledge(&self, upto: &[Position]) -> Result<(), Error>;

    /// Forgets what was handed out and not acknowledged: the next poll begins after the last acknowledgement.
    async fn rewind(&self) -> Result<(), Error>;

    /// Hands nothing of this topic partition out before `resume_after` has passed by the runtime's clock; the position is handed out
    /// again then.
    async fn pause(&self, from: &Position, resume_after: Duration) -> Result<(), Error>;

    /// How far the group is behind, per topic partition of this member.
    async fn lag(&self) -> Result<Vec<Lag>, Error>;
}

/// Joins groups: a consumer actor that restarts joins anew.
#[async_trait]
pub trait ConsumerGroups: Send + Sync {
    /// A member of `group` over all of `topics`; `member` of `members` share the partitions where the backend does not share them out itself.
    async fn join(
        &self,
        group: &str,
        topics: &[String],
        member: u32,
        members: u32,
    ) -> Result<std::sync::Arc<dyn GroupMember>, Error>;
}
