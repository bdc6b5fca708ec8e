//! Ledger of the dead letters that operators redrive: each is redriven once, however often it is requested, and the operator is recorded.
use std::time::Duration;

use async_trait::async_trait;
use domain::Timestamp;

use super::audit::Audit;
use crate::broker::Position;
use crate::error::Error;

/// Identifies a dead letter. A topic that is created again starts at offset 0, so the id includes the record's timestamp.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeadLetterId {
    /// Position in the dead-letter topic.
    pub position: Position,
    /// Timestamp of the record.
    pub timestamp: Timestamp,
}

/// State of a dead letter that was reserved for redrive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedriveRecord {
    /// Operator that reserved it, and the reason.
    pub audit: Audit,
    /// Time of the reservation, by the store's clock.
    pub at: Timestamp,
    /// Whether the record was appended to its topic. While false, the redrive is in progress or its instance died.
    pub confirmed: bool,
}

/// Reservations and confirmations of dead-letter redrives.
#[async_trait]
pub trait RedriveLedger: Send + Sync {
    /// Reserves dead letters and returns, in their order, which ones the caller now holds: those without a reservation, and those whose
    /// reservation is at least `reservation_timeout` old and was never confirmed. On an error none is reserved.
    async fn reserve(
        &self,
        ids: &[DeadLetterId],
        reservation_timeout: Duration,
        audit: &Audit,
    ) -> Result<Vec<bool>, Error>;

    /// Records that the dead letters were appended to their topic; no later call can reserve them.
    async fn confirm(&self, ids: &[DeadLetterId]) -> Result<(), Error>;

    /// Deletes the reservations of dead letters that were certainly not appended. A confirmed one stays confirmed.
    async fn release(&self, ids: &[DeadLetterId]) -> Result<(), Error>;

    /// Returns the record of each id, in their order; `None` for those that were never reserved.
    async fn find(&self, ids: &[DeadLetterId]) -> Result<Vec<Option<RedriveRecord>>, Error>;
}
