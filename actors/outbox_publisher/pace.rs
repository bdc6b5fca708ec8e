//! How long a partition rests after a batch. Each batch has a price that does not depend on its size: statements, a fence, a watermark, a
//! part of a transaction. Where many partitions have work, it is paid less often when each waits while others go.
use std::collections::BTreeMap;
use std::time::Duration;

use ports::partitions::PartitionNo;
use tokio::time::Instant;

use crate::world::Options;

/// Who rests. Pure: the actor tells it what happens, and when.
#[derive(Debug)]
pub(super) struct Pace {
    under_way: u32,
    least: Duration,
    most: Duration,
    until: BTreeMap<PartitionNo, Instant>,
}

impl Pace {
    /// Nobody rests.
    pub(super) fn new(options: &Options) -> Self {
        let Options { batches_under_way, batch_spacing, batch_rest_max, .. } = *options;
        Self { under_way: batches_under_way.max(1), least: batch_spacing, most: batch_rest_max, until: BTreeMap::new() }
    }

    /// A batch has sent something. Its partition rests, counted from the batch's beginning, so much longer than it took as more partitions
    /// than `under_way` have work: those that rest, and those that run.
    pub(super) fn sent(&mut self, partition: PartitionNo, begun: Instant, now: Instant, running: usize) {
        self.until.retain(|other, until| *other != partition && *until > now);
        let busy = u32::try_from(self.until.len() + running + 1).unwrap_or(u32::MAX);
        let rest = (now - begun).saturating_mul(busy) / self.under_way;
        self.until.insert(partition, begun + rest.min(self.most).max(self.least));
    }

    /// How long a partition still rests; zero where it does not.
    pub(super) fn left(&self, partition: PartitionNo, now: Instant) -> Duration {
        self.until.get(&partition).map(|until| until.saturating_duration_since(now)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn pace() -> Pace {
        Pace::new(&Options { batches_under_way: 4, batch_rest_max: 1_000 * MS, ..Options::default() })
    }

    #[test]
    fn a_partition_that_alone_has_work_rests_for_the_least_time() {
        let (mut pace, begun) = (pace(), Instant::now());
        pace.sent(PartitionNo(1), begun, begun + 30 * MS, 0);
        assert_eq!(pace.left(PartitionNo(1), begun + 5 * MS), 15 * MS, "of 20 ms from its beginning");
        assert_eq!(pace.left(PartitionNo(1), begun + 30 * MS), Duration::ZERO);
        assert_eq!(pace.left(PartitionNo(2), begun), Duration::ZERO, "the others do not rest");
    }

    #[test]
    fn the_more_have_work_the_longer_each_rests() {
        let (mut pace, begun) = (pace(), Instant::now());
        let ended = begun + 30 * MS;
        for number in 0..63 {
            pace.sent(PartitionNo(number), begun, ended, 8);
        }
        pace.sent(PartitionNo(63), begun, ended, 0);
        assert_eq!(pace.left(PartitionNo(63), begun), 30 * MS * 64 / 4);
        assert!(pace.left(PartitionNo(0), begun) < pace.left(PartitionNo(40), begun));
    }

    #[test]
    fn no_rest_is_longer_than_the_most() {
        let (mut pace, begun) = (pace(), Instant::now());
        pace.sent(PartitionNo(1), begun, begun + 400 * MS, 100);
        assert_eq!(pace.left(PartitionNo(1), begun), 1_000 * MS);
    }

    #[test]
    fn who_has_rested_counts_no_longer() {
        let (mut pace, begun) = (pace(), Instant::now());
        for number in 0..40 {
            pace.sent(PartitionNo(number), begun, begun + 8 * MS, 0);
        }
        let later = begun + 5_000 * MS;
        pace.sent(PartitionNo(0), later, later + 80 * MS, 0);
        assert_eq!(pace.left(PartitionNo(0), later), 20 * MS, "one batch, and nobody beside it");
    }
}
