//! Durations as the file's milliseconds.
use std::time::Duration;

/// Milliseconds; a longer duration than the column holds becomes one that no sum overflows.
pub(crate) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX / 4)
}
