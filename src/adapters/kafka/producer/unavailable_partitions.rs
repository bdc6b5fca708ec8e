//! Topic partitions that took no records a moment ago: they have no leader, or too few replicas in sync. Each failure aborts a transaction, after
//! a wait of seconds for a leader. The sessions therefore refuse the records of such a partition by themselves for a while, so that one partition
//! holds no other key up.
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// How long a failure stays valid. A partition that works again waits for at most this time.
const FAILURE_TTL: Duration = Duration::from_secs(5);

/// When a topic partition last failed; none for a partition that works. Clones share it: with two sessions in turn, the second one must not pay
/// for what the first has just found.
#[derive(Clone, Default)]
pub(crate) struct UnavailablePartitions(Arc<Mutex<FailuresByPartition>>);

type FailuresByPartition = HashMap<(Arc<str>, u32), Instant>;

impl UnavailablePartitions {
    /// A partition took no records.
    pub(crate) fn insert(&self, topic: &Arc<str>, partition: u32, now: Instant) {
        self.0.lock().insert((Arc::clone(topic), partition), now);
    }

    /// A partition took records.
    pub(crate) fn remove(&self, topic: &Arc<str>, partition: u32) {
        let mut failed = self.0.lock();
        if !failed.is_empty() {
            failed.remove(&(Arc::clone(topic), partition));
        }
    }

    /// Whether its records are refused without being sent.
    pub(crate) fn is_refused(&self, topic: &Arc<str>, partition: u32, now: Instant) -> bool {
        self.failed_at(topic, partition).is_some_and(|at| now.saturating_duration_since(at) < FAILURE_TTL)
    }

    /// Whether it has taken no records since its last failure: waiting for it once more would delay every other key.
    pub(crate) fn has_failed(&self, topic: &Arc<str>, partition: u32) -> bool {
        self.failed_at(topic, partition).is_some()
    }

    /// Whether every partition works.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// The topics of all partitions that have taken no records since they failed, and when each failed.
    pub(crate) fn failures(&self) -> Vec<(Arc<str>, Instant)> {
        self.0.lock().iter().map(|((topic, _), at)| (Arc::clone(topic), *at)).collect()
    }

    fn failed_at(&self, topic: &Arc<str>, partition: u32) -> Option<Instant> {
        let failed = self.0.lock();
        if failed.is_empty() {
            return None;
        }
        failed.get(&(Arc::clone(topic), partition)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_partition_is_refused_for_a_while_and_then_tried_without_a_wait() {
        let (failed, topic, start) = (UnavailablePartitions::default(), Arc::from("order.events"), Instant::now());
        failed.insert(&topic, 3, start);

        assert!(failed.is_refused(&topic, 3, start + FAILURE_TTL / 2));
        assert!(!failed.is_refused(&topic, 4, start), "another partition");
        assert!(!failed.is_refused(&topic, 3, start + FAILURE_TTL), "it is tried again");
        assert!(failed.has_failed(&topic, 3));

        failed.remove(&topic, 3);
        assert!(!failed.has_failed(&topic, 3), "it works again");
    }
}
