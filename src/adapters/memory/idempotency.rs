//! `Idempotency` in memory: the fast check of idempotent creates. The durable record in the store decides.
use std::sync::Arc;
use std::time::Duration;

use domain::{OrderId, Subject, Timestamp};
use ports::orders::idempotency::BeginOutcome;

use crate::bounded::BoundedMap;

pub(crate) type ScopedKey = (Subject, Arc<str>);

/// Keys in progress and completed keys.
pub(crate) struct IdempotencyKeys(BoundedMap<ScopedKey, KeyState>);

#[derive(Clone, Copy)]
pub(crate) enum KeyState {
    InProgress { expires_at: Timestamp },
    Completed { order_id: OrderId, fingerprint: [u8; 32], expires_at: Timestamp },
}

impl IdempotencyKeys {
    pub(crate) fn new(capacity: usize) -> Self {
        Self(BoundedMap::new(capacity))
    }

    pub(crate) fn begin(&self, key: ScopedKey, now: Timestamp, lock: Duration) -> BeginOutcome {
        self.0.update(key, |state| match state {
            Some(KeyState::InProgress { expires_at }) if *expires_at > now => BeginOutcome::InProgress,
            Some(KeyState::Completed { order_id, fingerprint, expires_at }) if *expires_at > now => {
                BeginOutcome::Completed { order_id: *order_id, fingerprint: Some(*fingerprint) }
            }
            _ => {
                *state = Some(KeyState::InProgress { expires_at: now.plus(lock) });
                BeginOutcome::Acquired
            }
        })
    }

    pub(crate) fn complete(&self, key: ScopedKey, completed: KeyState) {
        self.0.update(key, |state| *state = Some(completed));
    }

    pub(crate) fn abandon(&self, key: &ScopedKey) {
        self.0.change(key, |state| {
            if let Some(KeyState::InProgress { .. }) = state {
                *state = None;
            }
        });
    }
}

pub(crate) fn scoped(subject: &Subject, key: &str) -> ScopedKey {
    (subject.clone(), key.into())
}
