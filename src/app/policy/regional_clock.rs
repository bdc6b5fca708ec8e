//! The regional clock of an instance: how far the stamps of other regions have advanced it, and how far ahead a stamp may be.
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use domain::{Hlc, Timestamp};

/// How far a remote stamp may be ahead of the local clock where the configuration sets no other bound.
const DRIFT_MAX: Duration = Duration::from_secs(60);

/// Shortest time between two reports of changes that other regions reject: one jump of a clock may lead to thousands.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);

/// The greatest stamp of another region that this instance has received. Its own changes are stamped above it, so that a change that
/// follows a received one wins everywhere. A stamp that is ahead of the local clock by more than the bound of drift does not advance it.
#[derive(Debug)]
pub struct RegionalClock {
    drift_max: Duration,
    latest: Mutex<Hlc>,
    /// When a change that other regions reject was last reported.
    reported_at: Mutex<Option<Timestamp>>,
}

impl Default for RegionalClock {
    fn default() -> Self {
        Self::new(DRIFT_MAX)
    }
}

impl RegionalClock {
    /// A clock that has received no stamp, with this bound of drift.
    pub fn new(drift_max: Duration) -> Self {
        Self { drift_max, latest: Mutex::default(), reported_at: Mutex::default() }
    }

    /// The latest time that a stamp may have to be accepted.
    pub fn latest_accepted_time(&self, now: Timestamp) -> Timestamp {
        now.plus(self.drift_max)
    }

    /// The time from which a stamp is computed: `now`, or the wall clock's time where `now` is ahead of it by more than the bound of drift. `now`
    /// stays ahead until the process ends if the wall clock was ahead for a moment, and other regions reject what is stamped beyond the bound. Each
    /// stamp is still greater than those that it follows.
    pub fn physical_time(&self, now: Timestamp, wall: Timestamp) -> Timestamp {
        if now > self.latest_accepted_time(wall) { wall } else { now }
    }

    /// Whether other regions whose clocks show the same time as this wall clock reject an event with this stamp.
    fn is_rejected_elsewhere(&self, stamp: Hlc, wall: Timestamp) -> bool {
        stamp.millis > self.latest_accepted_time(wall).millis()
    }

    /// Whether a change with this stamp is to be reported: other regions reject its event, and no other one was reported for a minute.
    pub fn report_is_due(&self, stamp: Hlc, now: Timestamp, wall: Timestamp) -> bool {
        if !self.is_rejected_elsewhere(stamp, wall) {
            return false;
        }
        let mut reported_at = self.reported_at.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = reported_at.is_none_or(|reported_at| now.since(reported_at) >= REPORT_INTERVAL);
        if is_due {
            *reported_at = Some(now);
        }
        is_due
    }

    /// Advances to a received stamp, whether or not its event is stale.
    pub fn receive(&self, stamp: Hlc, now: Timestamp) {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        *latest = latest.merge(stamp, self.latest_accepted_time(now));
    }

    /// The greatest stamp received so far; zero before the first one.
    pub fn latest(&self) -> Hlc {
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The later of the greatest stamp received and this one, if it is within the bound. Does not advance the clock.
    pub fn latest_with(&self, stamp: Hlc, now: Timestamp) -> Hlc {
        self.latest().merge(stamp, self.latest_accepted_time(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(millis: i64, counter: u32) -> Hlc {
        Hlc { millis, counter }
    }

    #[test]
    fn received_stamp_advances_the_clock_within_the_bound_of_drift() {
        let now = Timestamp::from_millis(1_000);
        let cases = [
            (stamp(500, 3), stamp(500, 3)),
            (stamp(400, 9), stamp(500, 3)),
            (stamp(61_000, 1), stamp(61_000, 1)),
            (stamp(61_001, 0), stamp(61_000, 1)),
            (stamp(i64::MAX, 0), stamp(61_000, 1)),
        ];
        let clock = RegionalClock::default();
        for (received, expected) in cases {
            clock.receive(received, now);
            assert_eq!(clock.latest(), expected, "{received}");
        }
        assert!(clock.latest().tick(now) > stamp(61_000, 1), "the next local stamp is above every received one");
    }

    #[test]
    fn stamps_are_made_of_the_wall_clocks_time_beyond_the_bound_of_drift() {
        let clock = RegionalClock::default();
        let physical_time =
            |now, wall| clock.physical_time(Timestamp::from_millis(now), Timestamp::from_millis(wall)).millis();

        assert_eq!(physical_time(1_000, 1_000), 1_000);
        assert_eq!(physical_time(61_000, 1_000), 61_000, "a small step back of the wall clock is ignored");
        assert_eq!(physical_time(61_001, 1_000), 1_000);
        assert_eq!(physical_time(7_200_000, 300_000), 300_000);
        assert!(!clock.is_rejected_elsewhere(stamp(61_000, 9), Timestamp::from_millis(1_000)));
        assert!(clock.is_rejected_elsewhere(stamp(61_001, 0), Timestamp::from_millis(1_000)));
    }

    #[test]
    fn changes_that_other_regions_reject_are_reported_once_a_minute() {
        let (clock, wall) = (RegionalClock::default(), Timestamp::from_millis(1_000));
        let is_due = |millis, now| clock.report_is_due(stamp(millis, 0), Timestamp::from_millis(now), wall);

        assert!(!is_due(61_000, 1_000), "other regions accept it");
        assert_eq!(
            [1_000, 1_000, 60_999, 61_000, 61_001].map(|now| is_due(61_001, now)),
            [true, false, false, true, false]
        );
    }

    #[test]
    fn bound_of_drift_is_that_of_the_configuration() {
        let now = Timestamp::from_millis(1_000);
        let clock = RegionalClock::new(Duration::from_millis(500));

        clock.receive(stamp(1_501, 0), now);
        assert_eq!(clock.latest(), Hlc::default());
        assert_eq!(clock.latest_with(stamp(1_500, 2), now), stamp(1_500, 2));
        clock.receive(stamp(1_500, 1), now);
        assert_eq!((clock.latest(), clock.latest_accepted_time(now).millis()), (stamp(1_500, 1), 1_500));
    }
}
