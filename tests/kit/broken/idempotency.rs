//! Idempotency keys with a flaw.
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use domain::{OrderId, Subject};
use ports::Error;
use ports::orders::idempotency::{BeginOutcome, Idempotency};

use crate::broken::flaw::Flaw;

pub(crate) struct BrokenIdempotency {
    pub(crate) inner: Arc<dyn Idempotency>,
    pub(crate) flaw: Flaw,
}

impl BrokenIdempotency {
    fn subject(&self, subject: &Subject) -> Subject {
        let shared = || Subject::new("shared").expect("the name is valid");
        if self.flaw == Flaw::SharesKeysBetweenSubjects { shared() } else { subject.clone() }
    }
}

#[async_trait]
impl Idempotency for BrokenIdempotency {
    async fn begin(
        &self,
        subject: &Subject,
        key: &str,
        fingerprint: &[u8; 32],
        lock: Duration,
    ) -> Result<BeginOutcome, Error> {
        let lock = if self.flaw == Flaw::LockNeverExpires { lock * 1_000 } else { lock };
        match self.inner.begin(&self.subject(subject), key, fingerprint, lock).await? {
            BeginOutcome::InProgress if self.flaw == Flaw::AcquiresKeysInUse => Ok(BeginOutcome::Acquired),
            outcome => Ok(outcome),
        }
    }
    async fn complete(
        &self,
        subject: &Subject,
        key: &str,
        fingerprint: &[u8; 32],
        order_id: OrderId,
        keep: Duration,
    ) -> Result<(), Error> {
        if self.flaw == Flaw::ForgetsCompletedKeys {
            return self.inner.abandon(subject, key).await;
        }
        self.inner.complete(&self.subject(subject), key, fingerprint, order_id, keep).await
    }
    async fn abandon(&self, subject: &Subject, key: &str) -> Result<(), Error> {
        if self.flaw == Flaw::KeepsAbandonedKeys {
            return Ok(());
        }
        self.inner.abandon(&self.subject(subject), key).await
    }
}
