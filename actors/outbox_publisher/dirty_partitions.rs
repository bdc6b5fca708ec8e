//! DirtyPartitions: which partitions have a wake-up on its way and since when, so that many new rows cost one message.
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Release};
use std::time::Duration;

use ports::partitions::PartitionNo;
use tokio::time::Instant;

/// The value of a partition without a wake-up on its way.
const CLEAN: u64 = 0;

/// One mark for each partition, shared by the write side and the publisher.
#[derive(Clone)]
pub struct DirtyPartitions {
    /// When each partition was marked, in nanoseconds after `created_at`, or [`CLEAN`].
    marked: Arc<[AtomicU64]>,
    created_at: Instant,
}

impl DirtyPartitions {
    /// Marks for this number of partitions, all clean.
    pub fn new(partitions: u32) -> Self {
        Self { marked: (0..partitions).map(|_| AtomicU64::new(CLEAN)).collect(), created_at: Instant::now() }
    }

    /// Marks a partition. Returns true if it was clean, so that the caller must send a wake-up.
    pub fn mark(&self, partition: PartitionNo) -> bool {
        let nanoseconds = || u64::try_from(self.created_at.elapsed().as_nanos()).unwrap_or(u64::MAX).max(CLEAN + 1);
        self.marked.get(partition.0 as usize).is_some_and(|marked| {
            // A busy partition is marked: it needs no clock.
            marked.load(Acquire) == CLEAN && marked.compare_exchange(CLEAN, nanoseconds(), AcqRel, Acquire).is_ok()
        })
    }

    /// Cleans a partition: the next new row sends a wake-up again. Returns when it was marked.
    pub fn clear(&self, partition: PartitionNo) -> Option<Instant> {
        let marked = self.marked.get(partition.0 as usize)?.swap(CLEAN, AcqRel);
        (marked != CLEAN).then(|| self.created_at + Duration::from_nanos(marked))
    }

    /// The same marks, all clean: for a new publisher, because the former one may have taken wake-ups and died before it acted on them.
    pub fn cleared(self) -> Self {
        self.marked.iter().for_each(|marked| marked.store(CLEAN, Release));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_the_first_mark_of_a_clean_partition_asks_for_a_wake_up() {
        let dirty = DirtyPartitions::new(2);

        assert!(dirty.mark(PartitionNo(1)));
        assert!(!dirty.clone().mark(PartitionNo(1)), "clones share the marks");
        assert!(dirty.mark(PartitionNo(0)), "each partition has its own mark");
        dirty.clear(PartitionNo(1));

        assert!(dirty.mark(PartitionNo(1)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_cleared_partition_returns_the_time_of_its_first_mark() {
        let (dirty, second) = (DirtyPartitions::new(1), Duration::from_secs(1));
        tokio::time::advance(second).await;
        let first = Instant::now();
        dirty.mark(PartitionNo(0));
        tokio::time::advance(second).await;
        dirty.mark(PartitionNo(0));

        assert_eq!(dirty.clear(PartitionNo(0)), Some(first));
        assert_eq!(dirty.clear(PartitionNo(0)), None, "it is clean");
    }

    #[tokio::test(start_paused = true)]
    async fn a_partition_that_does_not_exist_is_never_dirty() {
        let dirty = DirtyPartitions::new(2);

        assert!(!dirty.mark(PartitionNo(2)));
        assert_eq!(dirty.clear(PartitionNo(2)), None);
    }
}
