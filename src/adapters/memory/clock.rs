//! The system clock, corrected so that small steps back do not show within a process.
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use domain::Timestamp;
use ports::clock::Clock;

/// Largest lead over the wall clock. A minute: tokens and other regions' stamps are accepted within it. A wall clock that is set back further
/// was wrong before.
const LEAD_MAX_MS: i64 = 60_000;

/// Monotonic time plus the largest distance to the wall clock seen so far. A wall clock that is set back by up to a minute is ignored until it
/// catches up; one that is set back further is followed, as is one that jumps ahead (a suspended machine woke up).
#[derive(Debug)]
pub struct SystemClock {
    started: Instant,
    offset_ms: AtomicI64,
}

impl SystemClock {
    /// A clock that starts at the wall clock's time.
    pub fn new() -> Self {
        Self { started: Instant::now(), offset_ms: AtomicI64::new(wall_ms()) }
    }

    fn at(&self, monotonic_ms: i64, wall_ms: i64) -> Timestamp {
        let distance = wall_ms.saturating_sub(monotonic_ms);
        let follow = |seen| if seen > distance.saturating_add(LEAD_MAX_MS) { distance } else { distance.max(seen) };
        let seen = self.offset_ms.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |seen| Some(follow(seen)));
        Timestamp::from_millis(monotonic_ms.saturating_add(follow(seen.unwrap_or_else(|seen| seen))))
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let monotonic_ms = i64::try_from(self.started.elapsed().as_millis()).unwrap_or(i64::MAX);
        self.at(monotonic_ms, wall_ms())
    }
}

fn wall_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wall_clock_that_is_set_back_does_not_move_time_back() {
        let clock = SystemClock { started: Instant::now(), offset_ms: AtomicI64::new(1_000) };

        assert_eq!(clock.at(10, 1_010).millis(), 1_010);
        assert_eq!(clock.at(20, 500).millis(), 1_020);
        assert_eq!(clock.at(30, 5_000).millis(), 5_000);
        assert_eq!(clock.at(40, 1_040).millis(), 5_010);
    }

    #[test]
    fn a_wall_clock_that_was_far_ahead_for_a_moment_is_followed_back() {
        let clock = SystemClock { started: Instant::now(), offset_ms: AtomicI64::new(0) };

        assert_eq!(clock.at(10, 7_200_000).millis(), 7_200_000);
        assert_eq!(clock.at(20, 7_140_010).millis(), 7_200_010, "a minute behind: it will catch up");
        assert_eq!(clock.at(30, 20).millis(), 20, "two hours behind: it was wrong before");
        assert_eq!(clock.at(40, 30).millis(), 30);
    }
}
