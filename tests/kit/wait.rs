//! Waiting for a condition with a deadline: the only place where tests let time pass.
use std::time::{Duration, Instant};

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// So much longer do tests wait here than a quiet machine takes: `POSTHASTE_TEST_PATIENCE` times, once unless it is set. A deadline
/// tells what stands still from what goes on; where others share the processors or the disk, it must not tell how busy those are.
pub fn patient(limit: Duration) -> Duration {
    let patience = std::env::var("POSTHASTE_TEST_PATIENCE").ok().and_then(|times| times.parse().ok()).unwrap_or(1);
    limit * patience
}

/// Looks until `look` finds something, no longer than [`patient`]ly.
///
/// # Panics
/// When it finds nothing within `limit`, saying what was waited for.
#[track_caller]
pub fn until<T>(what: &str, limit: Duration, look: impl FnMut() -> Option<T>) -> T {
    until_since(Instant::now(), what, limit, look)
}

/// The same, where the limit counts from an earlier moment: for several waits that share one.
///
/// # Panics
/// As [`until`].
#[track_caller]
pub fn until_since<T>(begun: Instant, what: &str, limit: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    until_told(begun, limit, || look().ok_or_else(|| what.to_owned()))
}

/// The same, where each look tells what it saw instead of what is waited for: the last of it is what a wait in vain says.
///
/// # Panics
/// As [`until`].
#[track_caller]
pub fn until_told<T>(begun: Instant, limit: Duration, mut look: impl FnMut() -> Result<T, String>) -> T {
    let limit = patient(limit);
    loop {
        match look() {
            Ok(found) => return found,
            Err(seen) => assert!(begun.elapsed() < limit, "waited {limit:?} in vain for: {seen}"),
        }
        std::thread::sleep(LOOK_EVERY);
    }
}
