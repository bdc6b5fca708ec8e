//! Bounds that all rate limits share.
use std::time::Duration;

/// Longest reported time until the next token, also for a bucket that is never refilled.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(24 * 3600);
