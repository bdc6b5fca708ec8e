//! Releases of idempotency keys that could not be sent. Without its release a key stays locked by a live process: its client would be
//! answered "in progress" until the lock expires, although nothing runs. The maintenance task sends them after the server's return.
use std::collections::VecDeque;

use parking_lot::Mutex;

/// Release of a key that this process has taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyRelease {
    /// Name of the key in Redis.
    pub(crate) key: String,
    pub(crate) result: KeyResult,
}

/// Result of the request that held a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeyResult {
    /// The request created an order: the value to write and its time to live.
    Completed { value: String, ttl_ms: u64 },
    /// The request created nothing: the key is free again.
    Abandoned,
}

/// The releases, oldest first.
#[derive(Default)]
pub(crate) struct PendingReleases(Mutex<VecDeque<KeyRelease>>);

impl PendingReleases {
    /// Adds a release. Beyond `max` the oldest is dropped, because its lock expires first.
    pub(crate) fn defer(&self, release: KeyRelease, max: usize) {
        let mut pending = self.0.lock();
        pending.push_back(release);
        while pending.len() > max {
            pending.pop_front();
        }
    }

    pub(crate) fn oldest(&self) -> Option<KeyRelease> {
        self.0.lock().front().cloned()
    }

    /// Removes the oldest release after it was sent, unless it was dropped meanwhile.
    pub(crate) fn remove(&self, release: &KeyRelease) {
        let mut pending = self.0.lock();
        if pending.front() == Some(release) {
            pending.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_release_is_sent_first_and_dropped_first() {
        let release = |name: &str| KeyRelease { key: name.to_owned(), result: KeyResult::Abandoned };
        let pending = PendingReleases::default();
        for name in ["a", "b", "c"] {
            pending.defer(release(name), 2);
        }
        assert_eq!(pending.oldest(), Some(release("b")));

        pending.remove(&release("a"));
        assert_eq!(pending.oldest(), Some(release("b")), "it was dropped before it was sent");
        pending.remove(&release("b"));
        pending.remove(&release("c"));

        assert_eq!(pending.oldest(), None);
    }
}
