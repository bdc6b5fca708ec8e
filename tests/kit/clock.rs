//! Clocks and random numbers that a test controls.
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use domain::Timestamp;
use parking_lot::Mutex;
use ports::clock::{Clock, Rng};
use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};

/// The default start time of test clocks: 2026-01-01T00:00:00Z.
pub const START_TIME: Timestamp = Timestamp::from_millis(1_767_225_600_000);

/// A clock that stands still until a test advances it. Clones share the time.
#[derive(Clone, Debug)]
pub struct TestClock(Arc<AtomicI64>);

impl TestClock {
    /// A clock that starts at this time.
    pub fn at(time: Timestamp) -> Self {
        Self(Arc::new(AtomicI64::new(time.millis())))
    }

    /// Moves the clock forward by this duration.
    pub fn advance(&self, by: Duration) {
        let later = self.now().plus(by);
        self.0.store(later.millis(), Ordering::SeqCst);
    }

    /// Moves the clock forward to this time. An earlier time changes nothing: the clock never goes back.
    pub fn set(&self, time: Timestamp) {
        self.0.fetch_max(time.millis(), Ordering::SeqCst);
    }
}

impl Default for TestClock {
    fn default() -> Self {
        Self::at(START_TIME)
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::SeqCst))
    }
}

/// A clock that follows tokio's time, so that paused virtual time drives a store's clock too. Clones share the time.
#[derive(Clone, Copy, Debug)]
pub struct TokioClock {
    origin: tokio::time::Instant,
    start: Timestamp,
}

impl TokioClock {
    /// A clock that shows `start` now. Call it inside the runtime that owns the time.
    pub fn starting_at(start: Timestamp) -> Self {
        Self { origin: tokio::time::Instant::now(), start }
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        self.start.plus(self.origin.elapsed())
    }
}

/// Random numbers that a seed reproduces.
#[derive(Debug)]
pub struct SeededRng(Mutex<StdRng>);

impl SeededRng {
    /// A generator with this seed.
    pub fn new(seed: u64) -> Self {
        Self(Mutex::new(StdRng::seed_from_u64(seed)))
    }
}

impl Rng for SeededRng {
    fn next_u64(&self) -> u64 {
        self.0.lock().next_u64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_clock_moves_only_when_advanced_and_never_back() {
        let clock = TestClock::default();
        let twin = clock.clone();

        clock.advance(Duration::from_secs(1));
        clock.set(START_TIME);

        assert_eq!(twin.now(), START_TIME.plus(Duration::from_secs(1)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_tokio_clock_follows_virtual_time() {
        let clock = TokioClock::starting_at(START_TIME);

        tokio::time::advance(Duration::from_secs(86_400)).await;

        assert_eq!(clock.now(), START_TIME.plus(Duration::from_secs(86_400)));
    }

    #[test]
    fn a_seed_reproduces_its_numbers() {
        let numbers = |seed| {
            let rng = SeededRng::new(seed);
            [rng.next_u64(), rng.next_u64(), rng.next_u64()]
        };

        assert_eq!(numbers(7), numbers(7));
        assert_ne!(numbers(7), numbers(8));
    }
}
