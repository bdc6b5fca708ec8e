//! Names and numbers that identify rows, partitions, instances, producer sessions and claims.
use std::fmt;
use std::sync::Arc;

/// Position of a row in its store; grows in commit order within one key.
pub type RowId = i64;

/// A fixed share of the keys; the unit of ownership and of order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionNo(pub u32);

impl fmt::Display for PartitionNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The stable name of one running service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstanceId(pub Arc<str>);

impl fmt::Display for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The transactional id of one producer session. A claim belongs to its session: once the session is fenced, nothing of the claim can
/// be published any more.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ProducerSessionId(pub Arc<str>);

impl fmt::Display for ProducerSessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Grows by one with each acquisition of a partition.
pub type Epoch = u64;
/// Grows with each statement that changes the rows of a partition.
pub type Counter = u64;
/// The counter value that a claim took, or the last exclusion from its batch. It identifies the batch and is never used again.
pub type Token = u64;

/// The lease that a statement relies on. A statement whose fence is out of date changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseFence {
    /// The partition whose rows the statement changes.
    pub partition: PartitionNo,
    /// The instance that acquired the partition.
    pub owner: InstanceId,
    /// The acquisition under which the owner acts.
    pub epoch: Epoch,
    /// The latest counter that the owner knows.
    pub counter: Counter,
}

impl LeaseFence {
    /// The token that a claim or an exclusion under this fence takes, which is also the counter after that statement.
    pub fn next_token(&self) -> Token {
        self.counter + 1
    }
}
