//! The store of idempotency keys under a fault script.
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use domain::{OrderId, Subject};
use ports::Error;
use ports::orders::idempotency::{BeginOutcome, Idempotency};

use crate::faults::script::{Call, FaultScript};

/// A key store with injected faults of `begin`.
pub struct FaultyIdempotency {
    inner: Arc<dyn Idempotency>,
    script: FaultScript,
}

impl FaultyIdempotency {
    /// Wraps a port with a fault script.
    pub fn wrap(inner: Arc<dyn Idempotency>, script: FaultScript) -> Self {
        Self { inner, script }
    }
}

#[async_trait]
impl Idempotency for FaultyIdempotency {
    async fn begin(
        &self,
        subject: &Subject,
        key: &str,
        fingerprint: &[u8; 32],
        lock: Duration,
    ) -> Result<BeginOutcome, Error> {
        self.script.apply(Call::BeginKey, self.inner.begin(subject, key, fingerprint, lock)).await
    }
    async fn complete(
        &self,
        subject: &Subject,
        key: &str,
        fingerprint: &[u8; 32],
        order_id: OrderId,
        keep: Duration,
    ) -> Result<(), Error> {
        self.inner.complete(subject, key, fingerprint, order_id, keep).await
    }
    async fn abandon(&self, subject: &Subject, key: &str) -> Result<(), Error> {
        self.inner.abandon(subject, key).await
    }
}
