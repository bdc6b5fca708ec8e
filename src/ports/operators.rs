//! What operators ask of the outbox: look, explain, retry, park, redrive. Their statements touch PENDING, FAILED and PARKED rows only,
//! through the lease row's counter, and leave an audit row.
use std::time::Duration;

use async_trait::async_trait;
use domain::{EventId, OrderId, Timestamp};

use crate::error::{Error, FailureType};
use crate::outbox::{RowId, RowStatus};
use crate::partitions::{Epoch, InstanceId, PartitionNo, Token};

/// A row as the view `outbox_rows` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowView {
    /// Its place.
    pub id: RowId,
    /// Its event.
    pub event_id: EventId,
    /// Its key.
    pub key: OrderId,
    /// Its type.
    pub kind: String,
    /// Its partition.
    pub partition: PartitionNo,
    /// Where it stands.
    pub status: RowStatus,
    /// Who claimed it last.
    pub lease_owner: Option<InstanceId>,
    /// Under which token.
    pub lease_version: Token,
    /// Attempts made.
    pub retry_count: u32,
    /// When it is due, if it waits.
    pub next_attempt_at: Option<Timestamp>,
    /// Where its last failure came from.
    pub failure_type: Option<FailureType>,
    /// Why it last failed.
    pub last_failure_reason: Option<String>,
    /// When it was written.
    pub created_at: Timestamp,
    /// When it left.
    pub sent_at: Option<Timestamp>,
}

/// Which rows to look at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowFilter {
    /// In this state.
    pub status: Option<RowStatus>,
    /// Of this key.
    pub key: Option<OrderId>,
    /// Of this type.
    pub kind: Option<String>,
    /// Failed this way.
    pub failure_type: Option<FailureType>,
    /// Written at least so long ago.
    pub older_than: Option<Duration>,
    /// Strictly after this row.
    pub after: Option<RowId>,
}

/// Whose row is asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowSelector {
    /// The first row of a key that has not left, else its latest.
    Key(OrderId),
    /// One event.
    Event(EventId),
}

/// All that is known about why an event stands where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowDiagnosis {
    /// The row asked about.
    pub row: RowView,
    /// The row it waits behind, when that is another one of its key.
    pub head: Option<RowView>,
    /// Who owns its partition.
    pub owner: Option<InstanceId>,
    /// Since which acquisition.
    pub epoch: Epoch,
    /// Times its claimer died with it in hand.
    pub deaths: u32,
    /// Where it went, once it has left.
    pub sent_to: Option<crate::broker::Position>,
    /// Whether it left by its type's fallback.
    pub by_fallback: bool,
}

impl RowDiagnosis {
    /// The answer in one word: SENT, IN_FLIGHT, PARKED, BLOCKED_BY_HEAD, WAITING_FOR_RETRY or PENDING. A row behind an earlier one of
    /// its key waits for that one, whatever it says of itself.
    pub fn verdict(&self, now: Timestamp) -> &'static str {
        match self.row.status {
            RowStatus::Sent => "SENT",
            RowStatus::InFlight => "IN_FLIGHT",
            RowStatus::Parked => "PARKED",
            RowStatus::Pending | RowStatus::Failed if self.head.is_some() => "BLOCKED_BY_HEAD",
            RowStatus::Failed => "WAITING_FOR_RETRY",
            RowStatus::Pending if self.row.next_attempt_at.is_some_and(|due| due > now) => "WAITING_FOR_RETRY",
            RowStatus::Pending => "PENDING",
        }
    }
}

/// Who acts, and why: kept with what was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audit {
    /// The operator.
    pub operator: String,
    /// The reason given.
    pub reason: String,
}

impl Audit {
    /// The failure reason of a row that an operator parks before it failed.
    pub fn parked(&self) -> String {
        let Self { operator, reason } = self;
        if reason.is_empty() { format!("parked by {operator}") } else { format!("parked by {operator}: {reason}") }
    }
}

/// What became of an operator's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperatorOutcome {
    /// Done; so many rows.
    Done(u64),
    /// There is no such row.
    Missing,
    /// The row is in flight or has left: nothing was changed.
    WrongStatus(RowStatus),
}

/// The operators' side of the outbox.
#[async_trait]
pub trait OutboxOperators: Send + Sync {
    /// At most `limit` rows in id order; SENT ones only while the archive keeps them.
    async fn rows(&self, filter: &RowFilter, limit: u32) -> Result<Vec<RowView>, Error>;

    /// One row.
    async fn row(&self, id: RowId) -> Result<Option<RowView>, Error>;

    /// Why an event stands where it stands.
    async fn standing(&self, whose: RowSelector) -> Result<Option<RowDiagnosis>, Error>;

    /// Makes a FAILED or PARKED row due now, keeping its place in its key's line; its attempts start again from 0 when it was parked.
    async fn retry(&self, id: RowId, audit: &Audit) -> Result<OperatorOutcome, Error>;

    /// Parks a PENDING or FAILED row; its key waits with it.
    async fn park(&self, id: RowId, audit: &Audit) -> Result<OperatorOutcome, Error>;

    /// How many PARKED rows the filter lets through (its `status` is ignored), and with `commit` makes
    /// the first `limit` of them due, in id order, and says how many that were.
    async fn redrive(
        &self,
        filter: &RowFilter,
        limit: u32,
        commit: bool,
        audit: &Audit,
    ) -> Result<OperatorOutcome, Error>;
}
