//! Topic partitions that took no records a moment ago: they have no leader, or too few replicas in sync. Each failure aborts a transaction, after a
//! wait of seconds for a leader, and the broker cannot complete the abort before the partition accepts its transaction marker. The sessions therefore
//! refuse the records of such a partition by themselves for a while, so that one partition holds no other key up.
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::protocol::cluster::ALL_IN_SYNC;

/// How long a failure stays valid. A partition that works again waits for at most this time.
const FAILURE_TTL: Duration = Duration::from_secs(5);
/// How long partitions with too few in-sync replicas are refused while the count does not rise. They are tried again because `min.insync.replicas`
/// may have been lowered. Each attempt blocks a transactional id until the partition accepts records, so the time grows by `TOO_FEW_TTL_FACTOR`.
const TOO_FEW_TTL: Duration = Duration::from_secs(300);
const TOO_FEW_TTL_FACTOR: u32 = 12;
const TOO_FEW_TTL_MAX: Duration = Duration::from_secs(12 * 3_600);

/// The failed topic partitions. Clones share them: with two sessions in turn, the second one must not pay for what the first has just found.
#[derive(Clone, Default)]
pub(crate) struct UnavailablePartitions(Arc<Mutex<KnownFailures>>);

#[derive(Default)]
struct KnownFailures {
    partitions: HashMap<(Arc<str>, u32), PartitionFailure>,
    /// By topic, because `min.insync.replicas` is a setting of the topic: a count that is too low for one partition is too low for all. Trying each
    /// of them would use up a transactional id each. The partition that last failed is also in `partitions`.
    insufficient_replicas: HashMap<Arc<str>, InsufficientReplicas>,
}

/// The failures of a partition since it last took records.
struct PartitionFailure {
    /// When it last failed.
    at: Instant,
    /// How long it is refused.
    ttl: Duration,
    /// It failed with too few replicas in sync.
    had_too_few: bool,
}

/// The number of in-sync replicas with which a partition of a topic refused records (NOT_ENOUGH_REPLICAS).
struct InsufficientReplicas {
    /// The partition that last failed with it.
    partition: u32,
    in_sync: usize,
    at: Instant,
    ttl: Duration,
}

impl UnavailablePartitions {
    /// A partition took no records. `too_few` is the number of its replicas in sync, if they were too few.
    pub(crate) fn insert(&self, topic: &Arc<str>, partition: u32, too_few: Option<usize>, now: Instant) {
        let known = &mut *self.0.lock();
        let key = (Arc::clone(topic), partition);
        let before = known.partitions.get(&key).filter(|before| before.had_too_few).map(|before| before.ttl);
        // The metadata shows all replicas in sync: usually the last one joined just after the record was refused. If it happens again, all replicas
        // are too few.
        let ttl = before.filter(|_| too_few == Some(ALL_IN_SYNC)).map_or(FAILURE_TTL, next_ttl);
        known.partitions.insert(key, PartitionFailure { at: now, ttl, had_too_few: too_few.is_some() });
        if let Some(in_sync) = too_few.filter(|in_sync| *in_sync < ALL_IN_SYNC) {
            let ttl = next_ttl(known.insufficient_replicas.get(topic).map_or(Duration::ZERO, |before| before.ttl));
            known
                .insufficient_replicas
                .insert(Arc::clone(topic), InsufficientReplicas { partition, in_sync, at: now, ttl });
        }
    }

    /// A partition with this many replicas in sync took records.
    pub(crate) fn remove(&self, topic: &Arc<str>, partition: u32, in_sync: Option<usize>) {
        let known = &mut *self.0.lock();
        known.partitions.remove(&(Arc::clone(topic), partition));
        let is_enough = |of: &InsufficientReplicas| {
            of.partition == partition || in_sync.is_some_and(|in_sync| in_sync <= of.in_sync)
        };
        if known.insufficient_replicas.get(topic).is_some_and(is_enough) {
            known.insufficient_replicas.remove(topic);
        }
    }

    /// Lowers each recorded count to that of the current metadata: the metadata at the time of the failure may have been old.
    pub(crate) fn lower_in_sync_counts(&self, in_sync: impl Fn(&str, u32) -> Option<usize>) {
        for (topic, known_count) in &mut self.0.lock().insufficient_replicas {
            let now = in_sync(topic, known_count.partition).unwrap_or(ALL_IN_SYNC);
            known_count.in_sync = known_count.in_sync.min(now);
        }
    }

    /// Whether the records of a partition with this many replicas in sync are refused without being sent.
    pub(crate) fn is_refused(&self, topic: &Arc<str>, partition: u32, in_sync: Option<usize>, now: Instant) -> bool {
        let known = self.0.lock();
        if let (Some(known_count), Some(in_sync)) = (known.insufficient_replicas.get(topic), in_sync) {
            if in_sync <= known_count.in_sync && now.saturating_duration_since(known_count.at) < known_count.ttl {
                return true;
            }
            if known_count.partition == partition {
                return false;
            }
        }
        let failure = known.partitions.get(&(Arc::clone(topic), partition));
        failure.is_some_and(|failure| now.saturating_duration_since(failure.at) < failure.ttl)
    }

    /// Whether it has taken no records since its last failure: waiting for it once more would delay every other key.
    pub(crate) fn has_failed(&self, topic: &Arc<str>, partition: u32) -> bool {
        self.0.lock().partitions.contains_key(&(Arc::clone(topic), partition))
    }

    /// Whether every partition works.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().partitions.is_empty()
    }

    /// The topics of all partitions that have taken no records since they failed, and when each failed.
    pub(crate) fn failures(&self) -> Vec<(Arc<str>, Instant)> {
        let known = self.0.lock();
        known.partitions.iter().map(|((topic, _), failure)| (Arc::clone(topic), failure.at)).collect()
    }
}

/// The time after this one for which partitions with too few replicas are refused.
fn next_ttl(ttl: Duration) -> Duration {
    (ttl * TOO_FEW_TTL_FACTOR).clamp(TOO_FEW_TTL, TOO_FEW_TTL_MAX)
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

        failed.remove(&topic, 3, Some(1));
        assert!(!failed.has_failed(&topic, 3), "it works again");
    }

    #[test]
    fn partitions_with_too_few_replicas_are_refused_until_more_are_in_sync() {
        let (failed, topic, start) = (UnavailablePartitions::default(), Arc::from("order.events"), Instant::now());
        failed.insert(&topic, 3, Some(2), start);

        let is_refused = |partition, in_sync| failed.is_refused(&topic, partition, in_sync, start + TOO_FEW_TTL / 2);
        for (in_sync, expected) in [(None, false), (Some(2), true), (Some(3), false), (Some(ALL_IN_SYNC), false)] {
            assert_eq!(is_refused(3, in_sync), expected, "{in_sync:?} in sync");
            assert_eq!(is_refused(4, in_sync), expected, "{in_sync:?} in sync, another partition");
        }
        assert!(!failed.is_refused(&Arc::from("other"), 3, Some(1), start), "another topic");

        failed.lower_in_sync_counts(|_, partition| (partition == 3).then_some(1));
        assert!(is_refused(3, Some(1)) && is_refused(4, Some(1)));
        assert!(!is_refused(4, Some(2)), "the metadata at the failure was old");

        failed.remove(&topic, 4, Some(2));
        assert!(is_refused(5, Some(1)), "2 are enough, and 1 is not");
        failed.remove(&topic, 4, Some(1));
        assert!(!is_refused(5, Some(1)), "1 is enough now");
    }

    #[test]
    fn all_replicas_are_too_few_the_second_time() {
        let (failed, topic, start) = (UnavailablePartitions::default(), Arc::from("order.events"), Instant::now());
        let is_refused = |after| failed.is_refused(&topic, 3, Some(ALL_IN_SYNC), start + after);

        failed.insert(&topic, 3, Some(ALL_IN_SYNC), start);
        assert!(!is_refused(FAILURE_TTL), "they may have joined again after the failure");
        failed.insert(&topic, 3, Some(ALL_IN_SYNC), start);
        assert!(is_refused(FAILURE_TTL));
        assert!(!failed.is_refused(&topic, 4, Some(ALL_IN_SYNC), start), "another partition");
    }

    #[test]
    fn each_attempt_without_more_replicas_waits_longer() {
        let (failed, topic, mut now) = (UnavailablePartitions::default(), Arc::from("order.events"), Instant::now());
        let hour = Duration::from_secs(3_600);
        for ttl in [hour / 12, hour, hour * 12, hour * 12] {
            failed.insert(&topic, 3, Some(1), now);
            assert!(failed.is_refused(&topic, 3, Some(1), now + ttl - Duration::from_secs(1)));
            now += ttl;
            assert!(!failed.is_refused(&topic, 3, Some(1), now), "{ttl:?}");
        }
    }
}
