//! The regional clock of an instance: how far the stamps of other regions have advanced it.
use std::sync::{Mutex, PoisonError};

use domain::{Hlc, Timestamp};

use super::conflict::DRIFT_MAX;

/// The greatest stamp of another region that this instance has received. Its own changes are stamped above it, so that a change that
/// follows a received one wins everywhere. A stamp more than [`DRIFT_MAX`] ahead of the local clock does not advance it.
#[derive(Debug, Default)]
pub struct RegionalClock(Mutex<Hlc>);

impl RegionalClock {
    /// Advances to a received stamp, whether or not its event is stale.
    pub fn receive(&self, stamp: Hlc, now: Timestamp) {
        let mut latest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *latest = merged(*latest, stamp, now);
    }

    /// The greatest stamp received so far; zero before the first one.
    pub fn latest(&self) -> Hlc {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The later of two stamps, if the received one is within the bound of drift.
pub fn merged(current: Hlc, received: Hlc, now: Timestamp) -> Hlc {
    current.merge(received, now.after(DRIFT_MAX))
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
}
