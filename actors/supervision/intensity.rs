//! Restart intensity: how many failures a supervisor takes in a sliding window before it gives up.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// The failures of the last `window`.
pub(crate) struct Intensity {
    pub(crate) max: usize,
    pub(crate) window: Duration,
    hits: VecDeque<Instant>,
}

impl Intensity {
    pub(crate) fn new(max: usize, window: Duration) -> Self {
        Intensity { max, window, hits: VecDeque::new() }
    }

    /// Counts one failure; true when that is one too many.
    pub(crate) fn exceeded_by(&mut self, now: Instant) -> bool {
        self.hits.push_back(now);
        while self.hits.front().is_some_and(|hit| now.duration_since(*hit) > self.window) {
            self.hits.pop_front();
        }
        self.hits.len() > self.max
    }

    /// Failures counted when the last one came in.
    pub(crate) fn count(&self) -> usize {
        self.hits.len()
    }

    pub(crate) fn clear(&mut self) {
        self.hits.clear();
    }
}
