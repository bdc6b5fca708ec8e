//! GroupSpacing: when the next group of commits starts. A transaction has a fixed cost, whatever the number of its commits. If every group started
//! at once, groups on a busy server would be small and slow each other down. After a pause a single commit starts at once.
use std::time::Duration;

use tokio::time::Instant;

/// Distance between the starts of two groups, as a multiple of the duration of the group that ended last.
const DISTANCE_FACTOR: u32 = 4;
/// This number of waiting commits starts a group immediately: the cost of the transaction is a small part of theirs.
const FULL_GROUP: usize = 16;

/// The pace of all committers together.
#[derive(Debug, Default)]
pub(crate) struct GroupSpacing {
    /// The earliest start of the next group; `None` before the first.
    next: Option<Instant>,
    /// How long the group that ended last took.
    last: Duration,
}

impl GroupSpacing {
    /// The moment until which `waiting` commits wait for more; `None` if they start now.
    pub(crate) fn waits_until(&self, waiting: usize, now: Instant) -> Option<Instant> {
        self.next.filter(|next| *next > now && waiting < FULL_GROUP)
    }

    /// A group starts; the next one starts at most `distance_max` later.
    pub(crate) fn record_start(&mut self, now: Instant, distance_max: Duration) {
        self.next = Some(now + self.last.saturating_mul(DISTANCE_FACTOR).min(distance_max));
    }

    /// A group has ended, whatever its result.
    pub(crate) fn record_end(&mut self, took: Duration) {
        self.last = took;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: Duration = Duration::from_millis(5);

    fn micros(count: u64) -> Duration {
        Duration::from_micros(count)
    }

    #[test]
    fn groups_start_four_times_the_last_duration_apart_up_to_the_limit() {
        let (mut pace, start) = (GroupSpacing::default(), Instant::now());
        assert_eq!(pace.waits_until(1, start), None, "the first group waits for nothing");

        for (took, distance) in [
            (micros(0), micros(0)),
            (micros(500), micros(2_000)),
            (micros(1_000), micros(4_000)),
            (micros(1_300), MAX),
            (micros(4_000_000), MAX),
        ] {
            pace.record_end(took);
            pace.record_start(start, MAX);
            let next = start + distance;
            assert_eq!(pace.waits_until(1, start), (distance > micros(0)).then_some(next), "after {took:?}");
            assert_eq!(pace.waits_until(1, next), None, "after {took:?}");
        }
    }

    #[test]
    fn full_group_starts_at_once() {
        let (mut pace, start) = (GroupSpacing::default(), Instant::now());
        pace.record_end(micros(10_000));
        pace.record_start(start, MAX);

        assert_eq!(pace.waits_until(FULL_GROUP - 1, start), Some(start + MAX));
        assert_eq!(pace.waits_until(FULL_GROUP, start), None);
    }
}
