//! SkewedClock: virtual time, and a wall clock that was ahead of it for a moment.
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use domain::Timestamp;
use kit::clock::TokioClock;
use ports::clock::Clock;

/// The wall clock shows virtual time. The clock that never goes back shows it too, until the wall clock was ahead.
pub struct SkewedClock {
    wall: TokioClock,
    ahead_seconds: AtomicU64,
}

impl SkewedClock {
    /// A clock that shows `start` now.
    pub fn starting_at(start: Timestamp) -> Self {
        Self { wall: TokioClock::starting_at(start), ahead_seconds: AtomicU64::default() }
    }

    /// Simulates a wall clock that was ahead by this time for a moment and was then corrected.
    pub fn jump_ahead_once(&self, by: Duration) {
        self.ahead_seconds.fetch_max(by.as_secs(), SeqCst);
    }
}

impl Clock for SkewedClock {
    fn now(&self) -> Timestamp {
        self.wall.now().plus(Duration::from_secs(self.ahead_seconds.load(SeqCst)))
    }

    fn wall(&self) -> Timestamp {
        self.wall.now()
    }
}
