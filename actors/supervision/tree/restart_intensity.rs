//! Restart intensity: how many failures a supervisor accepts in a sliding window before it escalates.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// The failures within the last `window`.
pub(crate) struct RestartIntensity {
    pub(crate) max: usize,
    pub(crate) window: Duration,
    failures: VecDeque<Instant>,
}

impl RestartIntensity {
    pub(crate) fn new(max: usize, window: Duration) -> Self {
        RestartIntensity { max, window, failures: VecDeque::new() }
    }

    /// Records one failure. Returns whether the window then holds more than `max`.
    pub(crate) fn record_failure(&mut self, now: Instant) -> bool {
        self.failures.push_back(now);
        while self.failures.front().is_some_and(|failure| now.duration_since(*failure) > self.window) {
            self.failures.pop_front();
        }
        self.failures.len() > self.max
    }

    /// Failures in the window at the time of the last one.
    pub(crate) fn count(&self) -> usize {
        self.failures.len()
    }

    /// The failures in the window at the time of the last one, the oldest first.
    pub(crate) fn failures(&self) -> &VecDeque<Instant> {
        &self.failures
    }

    pub(crate) fn clear(&mut self) {
        self.failures.clear();
    }
}
