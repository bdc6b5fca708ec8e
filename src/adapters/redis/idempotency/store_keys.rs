//! `Idempotency` of the store: the shared keys on the store's own server.
use std::time::Duration;

use async_trait::async_trait;
use domain::{OrderId, Subject};
use ports::Error;
use ports::orders::idempotency::{BeginOutcome, Idempotency};

use crate::store::client::RedisStore;

#[async_trait]
impl Idempotency for RedisStore {
    async fn begin(
        &self,
        subject: &Subject,
        key: &str,
        fingerprint: &[u8; 32],
        lock: Duration,
    ) -> Result<BeginOutcome, Error> {
        self.inner.redis.begin(subject, key, fingerprint, lock).await
    }

    async fn complete(
        &self,
        subject: &Subject,
        key: &str,
        fingerprint: &[u8; 32],
        order_id: OrderId,
        keep: Duration,
    ) -> Result<(), Error> {
        self.inner.redis.complete(subject, key, fingerprint, order_id, keep).await
    }

    async fn abandon(&self, subject: &Subject, key: &str) -> Result<(), Error> {
        self.inner.redis.abandon(subject, key).await
    }
}
