//! Time and chance that a test owns.
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use domain::Timestamp;
use parking_lot::Mutex;
use ports::clock::{Clock, Rng};
use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};

/// When tests begin unless they say otherwise: 2026-01-01T00:00:00Z.
pub const BEGINNING: Timestamp = Timestamp::from_millis(1_767_225_600_000);

/// A clock that stands still until it is moved. Clones show the same time.
#[derive(Clone, Debug)]
pub struct TestClock(Arc<AtomicI64>);

impl TestClock {
    /// A clock that shows this time.
    pub fn at(time: Timestamp) -> Self {
        Self(Arc::new(AtomicI64::new(time.millis())))
    }

    /// Lets time pass.
    pub fn advance(&self, by: Duration) {
        let later = self.now().after(by);
        self.0.store(later.millis(), Ordering::SeqCst);
    }

    /// Moves on to this time. An earlier one changes nothing: a clock of this kind never goes back.
    pub fn set(&self, time: Timestamp) {
        self.0.fetch_max(time.millis(), Ordering::SeqCst);
    }
}

impl Default for TestClock {
    fn default() -> Self {
        Self::at(BEGINNING)
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::SeqCst))
    }
}

/// A clock that follows tokio's time, so that paused virtual time drives a store's clock too. Clones show the same time.
#[derive(Clone, Copy, Debug)]
pub struct TokioClock {
    origin: tokio::time::Instant,
    began: Timestamp,
}

impl TokioClock {
    /// A clock that shows `began` now. Call it inside the runtime whose time it is to follow.
    pub fn starting_at(began: Timestamp) -> Self {
        Self { origin: tokio::time::Instant::now(), began }
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        self.began.after(self.origin.elapsed())
    }
}

/// Chance that a seed repeats.
#[derive(Debug)]
pub struct SeededDice(Mutex<StdRng>);

impl SeededDice {
    /// The dice of this seed.
    pub fn new(seed: u64) -> Self {
        Self(Mutex::new(StdRng::seed_from_u64(seed)))
    }
}

impl Rng for SeededDice {
    fn next_u64(&self) -> u64 {
        self.0.lock().next_u64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_clock_moves_only_when_told_and_never_back() {
        let clock = TestClock::default();
        let twin = clock.clone();

        clock.advance(Duration::from_secs(1));
        clock.set(BEGINNING);

        assert_eq!(twin.now(), BEGINNING.after(Duration::from_secs(1)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_tokio_clock_follows_virtual_time() {
        let clock = TokioClock::starting_at(BEGINNING);

        tokio::time::advance(Duration::from_secs(86_400)).await;

        assert_eq!(clock.now(), BEGINNING.after(Duration::from_secs(86_400)));
    }

    #[test]
    fn a_seed_repeats_its_rolls() {
        let rolls = |seed| {
            let dice = SeededDice::new(seed);
            [dice.next_u64(), dice.next_u64(), dice.next_u64()]
        };

        assert_eq!(rolls(7), rolls(7));
        assert_ne!(rolls(7), rolls(8));
    }
}
