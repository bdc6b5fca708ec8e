//! The port `Idempotency`, used where no Redis is configured.
use std::time::Duration;

use async_trait::async_trait;
use domain::{OrderId, Subject};
use ports::Error;
use ports::orders::idempotency::{BeginOutcome, Idempotency};

use crate::idempotency::deferred_releases::UnusedKey;
use crate::idempotency::{keys, release};
use crate::store::postgres::Postgres;

#[async_trait]
impl Idempotency for Postgres {
    async fn begin(
        &self,
        subject: &Subject,
        key: &str,
        fingerprint: &[u8; 32],
        lock: Duration,
    ) -> Result<BeginOutcome, Error> {
        let (context, subject, key, fingerprint) = (self.context(), subject.clone(), key.to_string(), *fingerprint);
        self.run("key_begin", async move { keys::begin(&context, subject.as_str(), &key, &fingerprint, lock).await })
            .await
    }

    async fn complete(
        &self,
        subject: &Subject,
        key: &str,
        fingerprint: &[u8; 32],
        order_id: OrderId,
        keep: Duration,
    ) -> Result<(), Error> {
        let (context, subject, key, fingerprint) = (self.context(), subject.clone(), key.to_string(), *fingerprint);
        self.run("key_complete", async move {
            keys::complete(&context, subject.as_str(), &key, &fingerprint, order_id, keep).await
        })
        .await
    }

    async fn abandon(&self, subject: &Subject, key: &str) -> Result<(), Error> {
        let (context, key) = (self.context(), UnusedKey { subject: subject.clone(), key: key.to_string() });
        self.run("key_abandon", async move { release::release(&context, key).await }).await
    }
}
