//! Exponential back-off between attempts that are repeated until the server answers again.
use std::time::Duration;

/// First pause: 100 ms, because a broken connection can mostly be replaced at once.
const FIRST: Duration = Duration::from_millis(100);
/// Longest pause: 2 s, so that an instance works soon after the return of its server.
const LONGEST: Duration = Duration::from_secs(2);

/// A pause that doubles with each wait, from 100 ms to 2 s.
pub(crate) struct RetryBackoff {
    next: Duration,
}

impl RetryBackoff {
    pub(crate) fn new() -> Self {
        Self { next: FIRST }
    }

    /// Waits before the next attempt. Cancel-safe.
    pub(crate) async fn wait(&mut self) {
        let pause = self.next;
        self.next = (pause * 2).min(LONGEST);
        tokio::time::sleep(pause).await;
    }

    /// Records that an attempt succeeded: the next pause is the first one again.
    pub(crate) fn reset(&mut self) {
        self.next = FIRST;
    }
}
