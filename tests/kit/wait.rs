//! Waiting for a condition with a deadline: the only place where tests let time pass.
use std::time::{Duration, Instant};

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Looks until `look` finds something.
///
/// # Panics
/// When it finds nothing within `limit`, saying what was waited for.
#[track_caller]
pub fn until<T>(what: &str, limit: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < limit, "waited {limit:?} in vain for: {what}");
        std::thread::sleep(LOOK_EVERY);
    }
}
