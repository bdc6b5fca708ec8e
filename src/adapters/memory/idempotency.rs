//! `Idempotency` in memory: the first line of idempotent creates. The mark in the store is the durable second line.
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use domain::{OrderId, Subject, Timestamp};
use ports::Error;
use ports::idempotency::{BeginOutcome, Idempotency};

use crate::bounded::BoundedMap;
use crate::memory::Memory;

type ScopedKey = (Subject, Arc<str>);

/// Keys in progress and completed keys.
pub(crate) struct IdempotencyKeys(BoundedMap<ScopedKey, KeyState>);

#[derive(Clone, Copy)]
enum KeyState {
    InProgress { until: Timestamp },
    Completed { order_id: OrderId, fingerprint: [u8; 32], until: Timestamp },
}

impl IdempotencyKeys {
    pub(crate) fn new(capacity: usize) -> Self {
        Self(BoundedMap::new(capacity))
    }

    fn begin(&self, key: ScopedKey, now: Timestamp, lock: Duration) -> BeginOutcome {
        self.0.update(key, |state| match state {
            Some(KeyState::InProgress { until }) if *until > now => BeginOutcome::InProgress,
            Some(KeyState::Completed { order_id, fingerprint, until }) if *until > now => {
                BeginOutcome::Completed { order_id: *order_id, fingerprint: Some(*fingerprint) }
            }
            _ => {
                *state = Some(KeyState::InProgress { until: now.after(lock) });
                BeginOutcome::Acquired
            }
        })
    }

    fn complete(&self, key: ScopedKey, completed: KeyState) {
        self.0.update(key, |state| *state = Some(completed));
    }

    fn abandon(&self, key: &ScopedKey) {
        self.0.change(key, |state| {
            if let Some(KeyState::InProgress { .. }) = state {
                *state = None;
            }
        });
    }
}

fn scoped(subject: &Subject, key: &str) -> ScopedKey {
    (subject.clone(), key.into())
}

#[async_trait]
impl Idempotency for Memory {
    async fn begin(
        &self,
        subject: &Subject,
        key: &str,
        _fingerprint: &[u8; 32],
        lock: Duration,
    ) -> Result<BeginOutcome, Error> {
        Ok(self.inner.keys.begin(scoped(subject, key), self.inner.clock.now(), lock))
    }

    async fn complete(
        &self,
        subject: &Subject,
        key: &str,
        fingerprint: &[u8; 32],
        order_id: OrderId,
        keep: Duration,
    ) -> Result<(), Error> {
        let until = self.inner.clock.now().after(keep);
        let completed = KeyState::Completed { order_id, fingerprint: *fingerprint, until };
        self.inner.keys.complete(scoped(subject, key), completed);
        Ok(())
    }

    async fn abandon(&self, subject: &Subject, key: &str) -> Result<(), Error> {
        self.inner.keys.abandon(&scoped(subject, key));
        Ok(())
    }
}
