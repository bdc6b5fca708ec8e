//! Releases of idempotency keys that failed. Without its release a key stays locked by a live process: its client would be answered "in
//! progress" until the lock expires, although nothing runs.
use std::collections::VecDeque;

use domain::Subject;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// A key that this process holds for a create that changed nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnusedKey {
    pub(crate) subject: Subject,
    pub(crate) key: String,
}

/// Keys whose release failed, oldest first.
#[derive(Default)]
pub(crate) struct DeferredReleases {
    keys: Mutex<VecDeque<UnusedKey>>,
    added: Notify,
}

impl DeferredReleases {
    /// Adds a key. Beyond `max` the oldest is dropped, because its lock expires first.
    pub(crate) fn add(&self, key: UnusedKey, max: usize) {
        let mut keys = self.keys.lock();
        keys.push_back(key);
        while keys.len() > max {
            keys.pop_front();
        }
        self.added.notify_one();
    }

    /// Waits for a key and returns the oldest. Cancel-safe.
    pub(crate) async fn oldest(&self) -> UnusedKey {
        loop {
            let oldest = self.keys.lock().front().cloned();
            match oldest {
                Some(key) => return key,
                None => self.added.notified().await,
            }
        }
    }

    /// Removes the oldest key after its release, unless it was dropped meanwhile.
    pub(crate) fn remove(&self, key: &UnusedKey) {
        let mut keys = self.keys.lock();
        if keys.front() == Some(key) {
            keys.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unused(key: &str) -> UnusedKey {
        UnusedKey { subject: Subject::new("ann").expect("a valid subject"), key: key.to_owned() }
    }

    #[tokio::test]
    async fn the_oldest_key_is_released_first_and_dropped_first() {
        let deferred = DeferredReleases::default();
        for key in ["a", "b", "c"] {
            deferred.add(unused(key), 2);
        }
        assert_eq!(deferred.oldest().await, unused("b"));

        deferred.remove(&unused("a"));
        assert_eq!(deferred.oldest().await, unused("b"), "a was dropped before it was released");
        deferred.remove(&unused("b"));

        assert_eq!(deferred.oldest().await, unused("c"));
    }
}
