//! The system clock, corrected so that it never goes back within a process.
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use domain::Timestamp;
use ports::clock::Clock;

/// Monotonic time plus the largest distance to the wall clock seen so far. A wall clock set back is ignored until it catches up; one
/// that jumps ahead is followed. On Linux the monotonic time runs on while the machine is suspended, so that a suspend counts also while
/// the wall clock is behind.
#[derive(Debug)]
pub struct SystemClock {
    offset_ms: AtomicI64,
}

impl SystemClock {
    /// A clock that starts at the wall clock's time.
    pub fn new() -> Self {
        Self { offset_ms: AtomicI64::new(wall_ms().saturating_sub(monotonic_ms())) }
    }

    fn corrected_time(&self, monotonic_ms: i64, wall_ms: i64) -> Timestamp {
        let distance = wall_ms.saturating_sub(monotonic_ms);
        let seen = self.offset_ms.fetch_max(distance, Ordering::Relaxed);
        Timestamp::from_millis(monotonic_ms.saturating_add(seen.max(distance)))
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        self.corrected_time(monotonic_ms(), wall_ms())
    }

    fn wall(&self) -> Timestamp {
        Timestamp::from_millis(wall_ms())
    }
}

/// Milliseconds since the machine was started, also those that it slept.
#[cfg(target_os = "linux")]
fn monotonic_ms() -> i64 {
    let since_boot = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let since_boot = std::time::Duration::try_from(since_boot).expect("the kernel counts from zero");
    i64::try_from(since_boot.as_millis()).unwrap_or(i64::MAX)
}

/// Milliseconds since the first call.
#[cfg(not(target_os = "linux"))]
fn monotonic_ms() -> i64 {
    static FIRST_CALL: std::sync::LazyLock<std::time::Instant> = std::sync::LazyLock::new(std::time::Instant::now);
    i64::try_from(FIRST_CALL.elapsed().as_millis()).unwrap_or(i64::MAX)
}

fn wall_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_wall_clock_that_is_set_back_does_not_move_time_back() {
        let clock = SystemClock { offset_ms: AtomicI64::new(1_000) };

        assert_eq!(clock.corrected_time(10, 1_010).millis(), 1_010);
        assert_eq!(clock.corrected_time(20, 500).millis(), 1_020);
        assert_eq!(clock.corrected_time(30, 5_000).millis(), 5_000);
        assert_eq!(clock.corrected_time(40, 1_040).millis(), 5_010);
    }

    #[test]
    fn wall_time_is_the_wall_clocks_although_it_was_ahead_before() {
        let clock = SystemClock::new();
        clock.corrected_time(monotonic_ms(), wall_ms() + 7_200_000);

        let (now, wall) = (clock.now(), clock.wall());

        assert!(now.since(wall) > Duration::from_secs(7_000), "{now:?} {wall:?}");
    }
}
