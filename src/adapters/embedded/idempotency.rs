//! `Idempotency` in memory: the quick first line. It forgets with the process and under pressure; the mark in the file does not.
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use domain::{OrderId, Subject, Timestamp};
use parking_lot::Mutex;
use ports::Error;
use ports::idempotency::{BeginOutcome, Idempotency};

use crate::generations::Generations;
use crate::open::Embedded;

type Name = (Subject, Arc<str>);

/// Keys in use and keys used.
pub(crate) struct Keys(Mutex<Generations<Name, Used>>);

#[derive(Clone, Copy)]
enum Used {
    Running { until: Timestamp },
    Completed { order_id: OrderId, fingerprint: [u8; 32], until: Timestamp },
}

impl Keys {
    pub(crate) fn new(capacity: usize) -> Self {
        Self(Mutex::new(Generations::new(capacity)))
    }

    fn begin(&self, name: Name, now: Timestamp, lock: Duration) -> BeginOutcome {
        let mut keys = self.0.lock();
        match keys.get_mut(&name) {
            Some(Used::Running { until }) if *until > now => BeginOutcome::InProgress,
            Some(Used::Completed { order_id, fingerprint, until }) if *until > now => {
                BeginOutcome::Completed { order_id: *order_id, fingerprint: Some(*fingerprint) }
            }
            _ => {
                keys.put(name, Used::Running { until: now.after(lock) });
                BeginOutcome::Acquired
            }
        }
    }

    fn abandon(&self, name: &Name) {
        let mut keys = self.0.lock();
        if let Some(Used::Running { .. }) = keys.get_mut(name) {
            keys.remove(name);
        }
    }
}

fn name(subject: &Subject, key: &str) -> Name {
    (subject.clone(), key.into())
}

#[async_trait]
impl Idempotency for Embedded {
    async fn begin(
        &self,
        subject: &Subject,
        key: &str,
        _fingerprint: &[u8; 32],
        lock: Duration,
    ) -> Result<BeginOutcome, Error> {
        Ok(self.inner.keys.begin(name(subject, key), self.inner.clock.now(), lock))
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
        let used = Used::Completed { order_id, fingerprint: *fingerprint, until };
        self.inner.keys.0.lock().put(name(subject, key), used);
        Ok(())
    }

    async fn abandon(&self, subject: &Subject, key: &str) -> Result<(), Error> {
        self.inner.keys.abandon(&name(subject, key));
        Ok(())
    }
}
