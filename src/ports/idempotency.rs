//! The quick first line of idempotent creates. It may forget (a flush, a crash): the durable mark inside the commit is the second line.
use std::time::Duration;

use async_trait::async_trait;
use domain::{OrderId, Subject};

use crate::error::Error;

/// What is known about a subject's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BeginOutcome {
    /// Nobody uses it: it is ours now, until completed, abandoned, or the lock time is over.
    Acquired,
    /// Somebody creates with it right now.
    InProgress,
    /// It was used: the order it made, and what was asked then.
    Completed {
        /// The order.
        order_id: OrderId,
        /// SHA-256 of what was asked; `None` in values written before fingerprints were kept.
        fingerprint: Option<[u8; 32]>,
    },
}

/// Keys in use and keys used.
#[async_trait]
pub trait Idempotency: Send + Sync {
    /// Takes a key for `lock`, by compare-and-set: of two callers one gets [`BeginOutcome::Acquired`].
    async fn begin(
        &self,
        subject: &Subject,
        key: &str,
        fingerprint: &[u8; 32],
        lock: Duration,
    ) -> Result<BeginOutcome, Error>;

    /// Remembers for `keep` what the key made. Called after the commit.
    async fn complete(
        &self,
        subject: &Subject,
        key: &str,
        fingerprint: &[u8; 32],
        order_id: OrderId,
        keep: Duration,
    ) -> Result<(), Error>;

    /// Gives a key back that made nothing.
    async fn abandon(&self, subject: &Subject, key: &str) -> Result<(), Error>;
}
