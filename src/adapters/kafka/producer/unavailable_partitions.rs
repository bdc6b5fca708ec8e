//! Topic partitions that took no records a moment ago: they have no leader, or too few replicas in sync. Each failure aborts a transaction, after
//! a wait of seconds for a leader, and the broker cannot end it before the partition takes its marker. The sessions therefore refuse the records
//! of such a partition by themselves for a while, so that one partition holds no other key up.
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// How long a failure stays valid. A partition that works again waits for at most this time.
const FAILURE_TTL: Duration = Duration::from_secs(5);
/// How long a partition with too few replicas in sync is refused while no more join: an operator may have lowered `min.insync.replicas`. Each
/// attempt costs a transactional id for as long as the partition takes no records, so each further one waits longer by the factor.
const TOO_FEW_TTL: Duration = Duration::from_secs(300);
const TOO_FEW_TTL_FACTOR: u32 = 12;
const TOO_FEW_TTL_MAX: Duration = Duration::from_secs(12 * 3_600);

/// The failed topic partitions. Clones share them: with two sessions in turn, the second one must not pay for what the first has just found.
#[derive(Clone, Default)]
pub(crate) struct UnavailablePartitions(Arc<Mutex<FailuresByPartition>>);

type FailuresByPartition = HashMap<(Arc<str>, u32), PartitionFailure>;

/// The failures of a partition since it last took records.
#[derive(Clone, Copy, Debug)]
struct PartitionFailure {
    /// When it last failed.
    at: Instant,
    /// The replicas that were in sync, where they were too few.
    too_few: Option<usize>,
    /// How long it is refused.
    ttl: Duration,
}

impl UnavailablePartitions {
    /// A partition took no records. `too_few` is the number of its replicas in sync, if they were too few.
    pub(crate) fn insert(&self, topic: &Arc<str>, partition: u32, too_few: Option<usize>, now: Instant) {
        let mut failed = self.0.lock();
        let failure = failed.entry((Arc::clone(topic), partition)).or_insert(PartitionFailure {
            at: now,
            too_few,
            ttl: Duration::ZERO,
        });
        let ttl = match too_few {
            None => FAILURE_TTL,
            Some(_) => (failure.ttl * TOO_FEW_TTL_FACTOR).clamp(TOO_FEW_TTL, TOO_FEW_TTL_MAX),
        };
        *failure = PartitionFailure { at: now, too_few, ttl };
    }

    /// A partition took records.
    pub(crate) fn remove(&self, topic: &Arc<str>, partition: u32) {
        let mut failed = self.0.lock();
        if !failed.is_empty() {
            failed.remove(&(Arc::clone(topic), partition));
        }
    }

    /// Whether the records of a partition with this many replicas in sync are refused without being sent. The metadata at the failure may have
    /// been old: the smallest number counts.
    pub(crate) fn is_refused(&self, topic: &Arc<str>, partition: u32, in_sync: Option<usize>, now: Instant) -> bool {
        let mut failed = self.0.lock();
        if failed.is_empty() {
            return false;
        }
        let Some(failure) = failed.get_mut(&(Arc::clone(topic), partition)) else { return false };
        if let (Some(known), Some(in_sync)) = (failure.too_few, in_sync) {
            if in_sync > known {
                return false;
            }
            failure.too_few = Some(in_sync);
        }
        now.saturating_duration_since(failure.at) < failure.ttl
    }

    /// Whether it has taken no records since its last failure: waiting for it once more would delay every other key.
    pub(crate) fn has_failed(&self, topic: &Arc<str>, partition: u32) -> bool {
        let failed = self.0.lock();
        !failed.is_empty() && failed.contains_key(&(Arc::clone(topic), partition))
    }

    /// Whether every partition works.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// The topics of all partitions that have taken no records since they failed, and when each failed.
    pub(crate) fn failures(&self) -> Vec<(Arc<str>, Instant)> {
        self.0.lock().iter().map(|((topic, _), failure)| (Arc::clone(topic), failure.at)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_partition_is_refused_for_a_while_and_then_tried_without_a_wait() {
        let (failed, topic, start) = (UnavailablePartitions::default(), Arc::from("order.events"), Instant::now());
        failed.insert(&topic, 3, None, start);

        assert!(failed.is_refused(&topic, 3, Some(1), start + FAILURE_TTL / 2));
        assert!(!failed.is_refused(&topic, 4, Some(1), start), "another partition");
        assert!(!failed.is_refused(&topic, 3, Some(1), start + FAILURE_TTL), "it is tried again");
        assert!(failed.has_failed(&topic, 3));

        failed.remove(&topic, 3);
        assert!(!failed.has_failed(&topic, 3), "it works again");
    }

    #[test]
    fn partition_with_too_few_replicas_is_refused_until_more_are_in_sync() {
        let (failed, topic, start) = (UnavailablePartitions::default(), Arc::from("order.events"), Instant::now());
        failed.insert(&topic, 3, Some(2), start);

        let later = start + TOO_FEW_TTL / 2;
        for (in_sync, is_refused) in
            [(None, true), (Some(2), true), (Some(3), false), (Some(1), true), (Some(2), false)]
        {
            assert_eq!(failed.is_refused(&topic, 3, in_sync, later), is_refused, "{in_sync:?} in sync");
        }
    }

    #[test]
    fn each_attempt_without_more_replicas_waits_longer() {
        let (failed, topic, mut now) = (UnavailablePartitions::default(), Arc::from("order.events"), Instant::now());
        let hour = Duration::from_secs(3_600);
        for ttl in [hour / 12, hour, hour * 12, hour * 12] {
            failed.insert(&topic, 3, Some(1), now);
            assert!(failed.is_refused(&topic, 3, Some(1), now + ttl - FAILURE_TTL));
            now += ttl;
            assert!(!failed.is_refused(&topic, 3, Some(1), now), "{ttl:?}");
        }
    }
}
