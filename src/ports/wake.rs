//! Telling other instances that a partition has work, or is free to take. A hint and nothing more: the poll finds what a hint missed.
use async_trait::async_trait;

use crate::partitions::PartitionNo;

/// A way to wake the instances that share a store.
#[async_trait]
pub trait Wakes: Send + Sync {
    /// Tells the others that this partition has rows to send, or is free to take. Never waits and never fails; hints that come close
    /// together travel as one.
    fn tell(&self, partition: PartitionNo);

    /// Waits for what the others told; never empty. A connection lost meanwhile is made anew inside, and what was told until then is
    /// lost. Cancel-safe.
    async fn told(&self) -> Vec<PartitionNo>;
}
