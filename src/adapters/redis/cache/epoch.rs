//! The cache's epoch as one process knows it, and whether the process may serve entries: pure data without I/O.
use std::time::{Duration, Instant};

/// The epoch that one process knows, and whether the cache is valid for it: a raise of the epoch ends the invalidations before it.
#[derive(Debug)]
pub(crate) struct EpochTracker {
    /// Number of invalidations so far.
    invalidations: u64,
    /// How many of them a raise of the epoch has ended.
    ended: u64,
    /// The server process that connections lead to.
    run_id: Option<String>,
    known: Option<KnownEpoch>,
}

#[derive(Clone, Copy, Debug)]
struct KnownEpoch {
    epoch: u64,
    since: Instant,
}

impl EpochTracker {
    /// For a new process the cache is invalid, because its previous run may have failed to write a change.
    pub(crate) fn new() -> Self {
        Self { invalidations: 1, ended: 0, run_id: None, known: None }
    }

    /// Invalidates the cache: entries may be outdated. Returns whether it was valid until now.
    pub(crate) fn invalidate(&mut self) -> bool {
        let was_valid = self.is_valid();
        self.invalidations += 1;
        was_valid
    }

    /// The number of invalidations so far, which a raise sent after this call ends; `None` while the cache is valid.
    pub(crate) fn invalidations_to_end(&self) -> Option<u64> {
        (!self.is_valid()).then_some(self.invalidations)
    }

    /// Records that the epoch was raised after this number of invalidations. Later ones need another raise.
    pub(crate) fn record_raise(&mut self, invalidations: u64, epoch: u64, now: Instant) {
        self.ended = self.ended.max(invalidations);
        self.record(epoch, now);
    }

    /// Whether entries of the current epoch may be served.
    pub(crate) fn is_valid(&self) -> bool {
        self.ended == self.invalidations
    }

    /// Records the epoch of a reply. Returns whether the reply is current. A reply that a newer one overtook invalidates nothing: that would raise
    /// the epoch for every instance, and overtake the next replies again.
    pub(crate) fn observe(&mut self, epoch: u64, now: Instant) -> bool {
        let is_current = self.known.is_none_or(|known| epoch >= known.epoch);
        self.record(epoch, now);
        is_current && self.is_valid()
    }

    /// Checks the stored epoch, read by a call that no other reply can overtake. A lower one, or none, means that the server lost data.
    /// Returns whether this invalidates a valid cache.
    pub(crate) fn check_stored(&mut self, epoch: Option<u64>, now: Instant) -> bool {
        let lost_data = match (epoch, self.known) {
            (Some(epoch), Some(known)) => epoch < known.epoch,
            (None, _) => true,
            (Some(_), None) => false,
        };
        if let Some(epoch) = epoch {
            self.record(epoch, now);
        }
        lost_data && self.invalidate()
    }

    /// Records the server process of a new connection: another one than before may have lost data of the former one. Returns whether this
    /// invalidates a valid cache.
    pub(crate) fn record_connection(&mut self, run_id: &str) -> bool {
        let former = self.run_id.replace(run_id.to_owned());
        former.is_some_and(|former| former != run_id) && self.invalidate()
    }

    /// The epoch under which an order may be cached; `None` while a request may still carry an order from before it.
    pub(crate) fn epoch_for_writes(&self, age_min: Duration, now: Instant) -> Option<u64> {
        let known = self.known.filter(|_| self.is_valid())?;
        (now.saturating_duration_since(known.since) >= age_min).then_some(known.epoch)
    }

    fn record(&mut self, epoch: u64, now: Instant) {
        if self.known.is_none_or(|known| epoch > known.epoch) {
            self.known = Some(KnownEpoch { epoch, since: now });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGE_MIN: Duration = Duration::from_secs(10);

    fn valid_at(epoch: u64, now: Instant) -> EpochTracker {
        let mut tracker = EpochTracker::new();
        tracker.record_raise(1, epoch, now);
        tracker
    }

    #[test]
    fn cache_is_invalid_for_a_new_process_until_it_has_raised_the_epoch() {
        let now = Instant::now();
        let mut tracker = EpochTracker::new();
        assert!(!tracker.is_valid() && !tracker.observe(7, now));

        tracker.record_raise(tracker.invalidations_to_end().expect("an invalid cache"), 8, now);

        assert!(tracker.is_valid() && tracker.observe(8, now));
    }

    #[test]
    fn an_invalidation_during_a_raise_needs_another_one() {
        let now = Instant::now();
        let mut tracker = EpochTracker::new();
        let invalidations = tracker.invalidations_to_end().expect("an invalid cache");
        tracker.invalidate();

        tracker.record_raise(invalidations, 8, now);

        assert!(!tracker.is_valid());
        tracker.record_raise(tracker.invalidations_to_end().expect("an invalid cache"), 9, now);
        assert!(tracker.is_valid());
    }

    #[test]
    fn orders_are_cached_only_under_an_epoch_known_for_long_enough() {
        let start = Instant::now();
        let mut tracker = valid_at(8, start);
        assert_eq!(tracker.epoch_for_writes(AGE_MIN, start), None);
        assert_eq!(tracker.epoch_for_writes(AGE_MIN, start + AGE_MIN), Some(8));

        // Another instance raised it: the age starts again.
        assert!(tracker.observe(9, start + AGE_MIN));
        assert_eq!(tracker.epoch_for_writes(AGE_MIN, start + AGE_MIN), None);
        assert_eq!(tracker.epoch_for_writes(AGE_MIN, start + AGE_MIN * 2), Some(9));
    }

    #[test]
    fn an_overtaken_reply_is_not_current_and_invalidates_nothing() {
        let now = Instant::now();
        let mut tracker = valid_at(9, now);

        assert!(!tracker.observe(8, now));

        assert!(tracker.is_valid());
    }

    #[test]
    fn a_server_that_lost_data_or_was_replaced_invalidates_the_cache() {
        let now = Instant::now();
        for lose_data in [
            |tracker: &mut EpochTracker, now| tracker.check_stored(None, now),
            |tracker: &mut EpochTracker, now| tracker.check_stored(Some(8), now),
            |tracker: &mut EpochTracker, _| tracker.record_connection("another"),
        ] {
            let mut tracker = valid_at(9, now);
            assert!(
                !tracker.record_connection("one")
                    && !tracker.record_connection("one")
                    && !tracker.check_stored(Some(9), now)
            );
            assert!(lose_data(&mut tracker, now) && !tracker.is_valid());
        }
    }
}
