//! Topic partitions that took no records a moment ago: they have no leader, or too few replicas in sync. Each failure aborts a transaction, after a
//! wait of seconds for a leader, and the broker cannot complete the abort before the partition accepts its transaction marker. The sessions therefore
//! refuse the records of such a partition by themselves for a while, so that one partition does not block the keys of others.
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::protocol::cluster::ALL_IN_SYNC;

/// How long a failure stays valid. A partition that works again waits for at most this time. Failures within it belong to one attempt: the topic
/// partitions of one transaction, and the transactions of two sessions.
const FAILURE_TTL: Duration = Duration::from_secs(5);
/// How long partitions with too few in-sync replicas are refused while the count does not rise. They are tried again because `min.insync.replicas`
/// may have been lowered. Each attempt blocks a transactional id until the partition accepts records, so the time grows by `TOO_FEW_TTL_FACTOR`.
const TOO_FEW_TTL: Duration = Duration::from_secs(300);
const TOO_FEW_TTL_FACTOR: u32 = 12;
const TOO_FEW_TTL_MAX: Duration = Duration::from_secs(12 * 3_600);

/// The failed topic partitions. Clones share them: with two sessions in turn, the second session must not repeat the wait of the first.
#[derive(Clone, Default)]
pub(crate) struct UnavailablePartitions(Arc<Mutex<KnownFailures>>);

#[derive(Default)]
struct KnownFailures {
    partitions: HashMap<(Arc<str>, u32), PartitionFailure>,
    /// By topic, because `min.insync.replicas` is a setting of the topic: a count that is too low for one partition is too low for all. Trying each
    /// of them would use up a transactional id each. The partition that last failed is also in `partitions`.
    insufficient_replicas: HashMap<Arc<str>, InsufficientReplicas>,
}

/// The last failure of a partition since it last took records.
struct PartitionFailure {
    refusal: RefusalPeriod,
    cause: Unavailability,
}

#[derive(Clone, Copy, PartialEq)]
enum Unavailability {
    /// It had no leader, or took no records for a reason that has nothing to do with its replicas.
    Other,
    /// It had this number of replicas in sync, which was too few.
    TooFewInSync(usize),
    /// It had too few replicas in sync, and no broker returned how many.
    TooFewUncounted,
}

/// The number of in-sync replicas with which a partition of a topic refused records (NOT_ENOUGH_REPLICAS).
#[derive(Clone, Copy, PartialEq, Debug)]
struct InsufficientReplicas {
    /// The partition that last failed with it.
    partition: u32,
    in_sync: usize,
    refusal: RefusalPeriod,
}

/// How long records are refused without being sent, since the attempt that failed.
#[derive(Clone, Copy, PartialEq, Debug)]
struct RefusalPeriod {
    began_at: Instant,
    ttl: Duration,
}

impl RefusalPeriod {
    fn contains(self, now: Instant) -> bool {
        now.saturating_duration_since(self.began_at) < self.ttl
    }

    /// Whether a failure at this moment belongs to the attempt that began the period.
    fn is_same_attempt(self, now: Instant) -> bool {
        now.saturating_duration_since(self.began_at) < FAILURE_TTL
    }

    /// The period after a failure at this moment: a longer one, unless the failure belongs to the same attempt.
    fn after_failure(self, now: Instant) -> Self {
        if self.is_same_attempt(now) { self } else { Self { began_at: now, ttl: next_ttl(self.ttl) } }
    }
}

impl UnavailablePartitions {
    /// A partition took no records. `too_few` is the number of its replicas in sync, if they were too few.
    pub(crate) fn insert(&self, topic: &Arc<str>, partition: u32, too_few: Option<usize>, now: Instant) {
        let known = &mut *self.0.lock();
        let key = (Arc::clone(topic), partition);
        let cause = too_few.map_or(Unavailability::Other, Unavailability::TooFewInSync);
        let before = known.partitions.get(&key).filter(|before| before.cause == cause).map(|before| before.refusal);
        // The metadata shows all replicas in sync: usually the last one joined just after the record was refused. If it happens again, all replicas
        // are too few.
        let refusal = before.filter(|_| too_few == Some(ALL_IN_SYNC)).map(|before| before.after_failure(now));
        let refusal = refusal.unwrap_or(RefusalPeriod { began_at: now, ttl: FAILURE_TTL });
        known.partitions.insert(key, PartitionFailure { refusal, cause });
        if let Some(in_sync) = too_few.filter(|in_sync| *in_sync < ALL_IN_SYNC) {
            let failed =
                InsufficientReplicas { partition, in_sync, refusal: RefusalPeriod { began_at: now, ttl: TOO_FEW_TTL } };
            let is_repeated = before.is_some_and(|before| !before.is_same_attempt(now));
            let count = known.insufficient_replicas.entry(Arc::clone(topic)).or_insert(failed);
            *count = count.with_failure(failed, is_repeated);
        }
    }

    /// A partition had too few replicas in sync, and no broker returned how many. Its records are refused until [`Self::count_in_sync`].
    pub(crate) fn insert_uncounted(&self, topic: &Arc<str>, partition: u32, now: Instant) {
        let refusal = RefusalPeriod { began_at: now, ttl: TOO_FEW_TTL };
        let failure = PartitionFailure { refusal, cause: Unavailability::TooFewUncounted };
        self.0.lock().partitions.insert((Arc::clone(topic), partition), failure);
    }

    /// Completes the failures without a count from metadata that was read since. `in_sync_since` returns nothing where there is none. A failure that
    /// is older than an attempt stays without a count, and its partition is tried again: enough replicas may have joined.
    pub(crate) fn count_in_sync(&self, in_sync_since: impl Fn(&str, u32, Instant) -> Option<usize>, now: Instant) {
        let mut counted = Vec::new();
        let mut known = self.0.lock();
        let is_uncounted = |failure: &PartitionFailure| failure.cause == Unavailability::TooFewUncounted;
        for ((topic, partition), failure) in known.partitions.iter_mut().filter(|(_, last)| is_uncounted(last)) {
            if let Some(in_sync) = in_sync_since(topic, *partition, failure.refusal.began_at) {
                (failure.cause, failure.refusal.ttl) = (Unavailability::Other, FAILURE_TTL);
                counted.push((Arc::clone(topic), *partition, in_sync, failure.refusal));
            }
        }
        drop(known);
        for (topic, partition, in_sync, refusal) in counted.into_iter().filter(|(.., refusal)| refusal.contains(now)) {
            self.insert(&topic, partition, Some(in_sync), refusal.began_at);
        }
    }

    /// A partition with this many replicas in sync took records.
    pub(crate) fn remove(&self, topic: &Arc<str>, partition: u32, in_sync: Option<usize>) {
        let known = &mut *self.0.lock();
        known.partitions.remove(&(Arc::clone(topic), partition));
        let is_enough = |count: &InsufficientReplicas| {
            count.partition == partition || in_sync.is_some_and(|in_sync| in_sync <= count.in_sync)
        };
        if known.insufficient_replicas.get(topic).is_some_and(is_enough) {
            known.insufficient_replicas.remove(topic);
        }
    }

    /// Lowers each recorded count to that of the current metadata: the metadata at the time of the failure may have been old.
    pub(crate) fn lower_in_sync_counts(&self, in_sync: impl Fn(&str, u32) -> Option<usize>) {
        let known = &mut *self.0.lock();
        let present = |topic: &str, partition: u32| in_sync(topic, partition).unwrap_or(ALL_IN_SYNC);
        for (topic, known_count) in &mut known.insufficient_replicas {
            known_count.in_sync = known_count.in_sync.min(present(topic, known_count.partition));
        }
        for ((topic, partition), failure) in &mut known.partitions {
            if let Unavailability::TooFewInSync(in_sync) = &mut failure.cause {
                *in_sync = (*in_sync).min(present(topic, *partition));
            }
        }
    }

    /// Whether the records of a partition with this many replicas in sync are refused without being sent.
    pub(crate) fn is_refused(&self, topic: &Arc<str>, partition: u32, in_sync: Option<usize>, now: Instant) -> bool {
        let known = self.0.lock();
        let is_too_few = |count: &InsufficientReplicas| {
            count.refusal.contains(now) && in_sync.is_some_and(|in_sync| in_sync <= count.in_sync)
        };
        let has_more_in_sync = |last: &PartitionFailure| match last.cause {
            Unavailability::TooFewInSync(count) => in_sync.is_some_and(|in_sync| in_sync > count),
            Unavailability::Other | Unavailability::TooFewUncounted => false,
        };
        let has_failed = |last: &PartitionFailure| last.refusal.contains(now) && !has_more_in_sync(last);
        known.insufficient_replicas.get(topic).is_some_and(is_too_few)
            || known.partitions.get(&(Arc::clone(topic), partition)).is_some_and(has_failed)
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
        known.partitions.iter().map(|((topic, _), failure)| (Arc::clone(topic), failure.refusal.began_at)).collect()
    }
}

impl InsufficientReplicas {
    /// The topic's count after one of its partitions failed; `is_repeated` if the partition failed with as many replicas in an earlier attempt.
    /// Of one attempt, the lowest count is kept. A higher one becomes the topic's only when it is repeated: just after a replica has joined again,
    /// the metadata is ahead of the partition's leader, and the count that it shows may be enough.
    fn with_failure(self, failed: Self, is_repeated: bool) -> Self {
        let is_higher = failed.in_sync > self.in_sync;
        if is_higher && (!is_repeated || self.refusal.is_same_attempt(failed.refusal.began_at)) {
            return self;
        }
        let refusal = self.refusal.after_failure(failed.refusal.began_at);
        Self { refusal: if is_higher { RefusalPeriod { ttl: self.refusal.ttl, ..refusal } } else { refusal }, ..failed }
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

    /// After these failures, given as (second, partition, replicas in sync), whether records are refused, given as (second, partition, replicas in
    /// sync, is refused).
    fn check(name: &str, failures: &[(u64, u32, usize)], expected: &[(u64, u32, usize, bool)]) {
        let (failed, topic, start) = (UnavailablePartitions::default(), Arc::from("order.events"), Instant::now());
        let at = |second| start + Duration::from_secs(second);
        failures
            .iter()
            .for_each(|(second, partition, in_sync)| failed.insert(&topic, *partition, Some(*in_sync), at(*second)));
        for (second, partition, in_sync, is_refused) in expected.iter().copied() {
            let result = failed.is_refused(&topic, partition, Some(in_sync), at(second));
            assert_eq!(result, is_refused, "{name}: partition {partition} with {in_sync} in sync, second {second}");
        }
    }

    #[test]
    fn attempt_counts_once_however_many_partitions_fail() {
        check(
            "three partitions of one transaction, and one of another session",
            &[(0, 3, 1), (0, 4, 1), (0, 5, 1), (4, 6, 1)],
            &[(299, 3, 1, true), (300, 3, 1, false)],
        );
        let lowest = [(5, 3, 2, false), (5, 4, 2, false), (299, 3, 1, true), (299, 5, 1, true)];
        check("the lowest count of an attempt, first", &[(0, 4, 1), (0, 3, 2)], &lowest);
        check("the lowest count of an attempt, last", &[(0, 3, 2), (0, 4, 1)], &lowest);
    }

    #[test]
    fn all_replicas_are_too_few_the_second_time() {
        const ALL: usize = ALL_IN_SYNC;
        check("they may have joined again after the failure", &[(0, 3, ALL)], &[(4, 3, ALL, true), (5, 3, ALL, false)]);
        check("two sessions in one attempt", &[(0, 3, ALL), (1, 3, ALL)], &[(5, 3, ALL, false)]);
        check(
            "two attempts",
            &[(0, 3, ALL), (5, 3, ALL)],
            &[(304, 3, ALL, true), (305, 3, ALL, false), (6, 4, ALL, false)],
        );
        check(
            "the first failure with all of them",
            &[(0, 3, 1), (5, 3, ALL)],
            &[(9, 3, ALL, true), (10, 3, ALL, false)],
        );
        check(
            "two attempts after one with fewer replicas",
            &[(0, 3, 1), (5, 3, ALL), (10, 3, ALL)],
            &[(11, 3, ALL, true), (309, 3, ALL, true), (310, 3, ALL, false), (11, 4, ALL, false)],
        );
    }

    #[test]
    fn higher_count_is_too_few_for_the_topic_the_second_time() {
        check(
            "the metadata was ahead of the leader",
            &[(0, 3, 1), (1, 3, 2)],
            &[(2, 3, 2, true), (6, 3, 2, false), (2, 4, 2, false), (2, 4, 1, true), (299, 4, 1, true)],
        );
        check("both failures belong to one attempt", &[(0, 3, 1), (7, 3, 2), (8, 3, 2)], &[(8, 4, 2, false)]);
        check(
            "it fails again",
            &[(0, 3, 1), (1, 3, 2), (6, 3, 2)],
            &[(7, 4, 2, true), (305, 4, 2, true), (306, 4, 2, false), (7, 4, 3, false)],
        );
        check("another partition fails with it", &[(0, 3, 1), (1, 3, 2), (6, 4, 2)], &[(7, 5, 2, false)]);
    }

    #[test]
    fn partition_with_more_replicas_than_at_its_failure_is_tried_at_once() {
        let (failed, topic, start) = (UnavailablePartitions::default(), Arc::from("order.events"), Instant::now());
        failed.insert(&topic, 4, Some(1), start);
        failed.insert(&topic, 3, Some(2), start);
        assert!(failed.is_refused(&topic, 3, Some(2), start));
        assert!(!failed.is_refused(&topic, 3, Some(3), start));

        failed.lower_in_sync_counts(|_, partition| (partition == 3).then_some(1));
        assert!(!failed.is_refused(&topic, 3, Some(2), start), "the metadata at the failure was old");
    }

    #[test]
    fn partition_is_refused_until_metadata_shows_how_many_replicas_it_has() {
        let (topic, start): (Arc<str>, _) = (Arc::from("order.events"), Instant::now());
        let at = |second| start + Duration::from_secs(second);
        // Replicas in sync in metadata that was read in some second, and whether the partition is then refused in later seconds.
        for (in_sync, read_second, expected) in [
            (1, 4, [(5, true), (299, true), (300, false)]),
            (ALL_IN_SYNC, 1, [(4, true), (5, false), (300, false)]),
            (1, 5, [(5, false), (6, false), (300, false)]),
            (ALL_IN_SYNC, 250, [(250, false), (251, false), (300, false)]),
        ] {
            let failed = UnavailablePartitions::default();
            failed.insert_uncounted(&topic, 3, start);
            failed.count_in_sync(|_, _, _| None, at(read_second));
            assert!(
                failed.is_refused(&topic, 3, Some(ALL_IN_SYNC), at(read_second)),
                "no broker has returned metadata"
            );
            assert!(!failed.is_refused(&topic, 4, Some(1), at(read_second)), "another partition");

            failed.count_in_sync(|_, _, since| (since == start).then_some(in_sync), at(read_second));
            for (second, is_refused) in expected {
                let result = failed.is_refused(&topic, 3, Some(in_sync), at(second));
                assert_eq!(result, is_refused, "{in_sync} in sync, read in second {read_second}, second {second}");
            }
            assert!(!failed.is_refused(&topic, 3, Some(2), at(6)), "more replicas have joined");
        }

        let failed = UnavailablePartitions::default();
        failed.insert_uncounted(&topic, 3, start);
        assert!(!failed.is_refused(&topic, 3, None, start + TOO_FEW_TTL), "it is tried without metadata in the end");
        failed.remove(&topic, 3, Some(1));
        assert!(failed.is_empty(), "it works again");
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
