//! DirtyPartitions: which partitions have a wake-up on its way, so that many new rows cost one message.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::AcqRel, Ordering::Release};

use ports::partitions::PartitionNo;

/// One flag for each partition, shared by the write side and the publisher.
#[derive(Clone)]
pub struct DirtyPartitions(Arc<[AtomicBool]>);

impl DirtyPartitions {
    /// Flags for this number of partitions, all clean.
    pub fn new(partitions: u32) -> Self {
        Self((0..partitions).map(|_| AtomicBool::new(false)).collect())
    }

    /// Marks a partition. Returns true if it was clean, so that the caller must send a wake-up.
    pub fn mark(&self, partition: PartitionNo) -> bool {
        self.0.get(partition.0 as usize).is_some_and(|dirty| !dirty.swap(true, AcqRel))
    }

    /// Cleans a partition: the next new row sends a wake-up again.
    pub fn clear(&self, partition: PartitionNo) {
        if let Some(dirty) = self.0.get(partition.0 as usize) {
            dirty.store(false, Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_mark_of_a_clean_partition_asks_for_a_wake_up() {
        let dirty = DirtyPartitions::new(2);

        assert!(dirty.mark(PartitionNo(1)));
        assert!(!dirty.clone().mark(PartitionNo(1)), "clones share the flags");
        assert!(dirty.mark(PartitionNo(0)), "each partition has its own flag");
        dirty.clear(PartitionNo(1));

        assert!(dirty.mark(PartitionNo(1)));
    }

    #[test]
    fn a_partition_that_does_not_exist_is_never_dirty() {
        assert!(!DirtyPartitions::new(2).mark(PartitionNo(2)));
    }
}
