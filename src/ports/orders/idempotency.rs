//! Fast store of idempotency keys. It may lose keys (a flush, a crash); the durable record in the order's commit still prevents duplicates.
use std::time::Duration;

use async_trait::async_trait;
use domain::{OrderId, Subject};

use crate::error::Error;

/// State of a subject's idempotency key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BeginOutcome {
    /// The key was free. The caller holds it until it is completed or abandoned, or the lock time has passed.
    Acquired,
    /// Another request with this key is running.
    InProgress,
    /// The key was used for a create that succeeded.
    Completed {
        /// Order that was created.
        order_id: OrderId,
        /// SHA-256 of that request; `None` in values written before fingerprints were kept.
        fingerprint: Option<[u8; 32]>,
    },
}

/// Idempotency keys, locked and completed.
#[async_trait]
pub trait Idempotency: Send + Sync {
    /// Locks a key for `lock` by compare-and-set: of two callers one gets [`BeginOutcome::Acquired`].
    async fn begin(
        &self,
        subject: &Subject,
        key: &str,
        fingerprint: &[u8; 32],
        lock: Duration,
    ) -> Result<BeginOutcome, Error>;

    /// Stores the created order under the key for `keep`. Called after the commit.
    async fn complete(
        &self,
        subject: &Subject,
        key: &str,
        fingerprint: &[u8; 32],
        order_id: OrderId,
        keep: Duration,
    ) -> Result<(), Error>;

    /// Unlocks a key whose request created nothing or has an unknown outcome. A store that cannot be reached repeats the release by itself until
    /// it succeeds, the key's lock expires, or the process ends.
    async fn abandon(&self, subject: &Subject, key: &str) -> Result<(), Error>;
}
