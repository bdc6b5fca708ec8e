//! Converts durations to the milliseconds that the columns store.
use std::time::Duration;

/// The duration in milliseconds. A duration that exceeds the column is limited so that adding it to a time does not overflow.
pub(crate) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX).min(i64::MAX / 4)
}
