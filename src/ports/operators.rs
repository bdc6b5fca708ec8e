//! Operator actions on the outbox: list, diagnose, retry, park, redrive. They change PENDING, FAILED and PARKED rows only, increment the
//! counter of the lease row, and write an audit row.
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use domain::{EventId, Timestamp};

use crate::broker::Position;
use crate::error::{Error, FailureType};
use crate::outbox::{ClaimedRow, EventKey, RowId, RowStatus};
use crate::partitions::{Epoch, InstanceId, PartitionNo, Token};

mod audit;
pub mod redrives;

pub use audit::{Audit, AuditEntry, AuditFilter, AuditId, OperatorAction};

/// Whether a redrive changes anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RedriveMode {
    /// Count or check what the redrive would change, and change nothing.
    DryRun,
    /// Send the rows or dead letters again.
    Execute,
}

impl RedriveMode {
    /// The mode of a request with this value of `dryRun` or `--dry-run`.
    pub fn from_dry_run(dry_run: bool) -> Self {
        if dry_run { Self::DryRun } else { Self::Execute }
    }
}

/// An outbox row as the view `outbox_rows` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowView {
    /// Id of the row; ids grow with the order of commits within a key.
    pub id: RowId,
    /// Event that the row publishes.
    pub event_id: EventId,
    /// Record key; the order id, for an order's event.
    pub key: EventKey,
    /// Event type by its name in events.
    pub event_type: String,
    /// Outbox partition of the key.
    pub partition: PartitionNo,
    /// State of the row.
    pub status: RowStatus,
    /// Instance that claimed the row last.
    pub lease_owner: Option<InstanceId>,
    /// Fencing token of that claim.
    pub lease_version: Token,
    /// Attempts counted so far. Attempts that failed in an outage are counted only up to half of `attempts_max`.
    pub retry_count: u32,
    /// Time of the next attempt, while the row waits for one.
    pub next_attempt_at: Option<Timestamp>,
    /// Time of the claim of the row's last attempt that was not returned; `None` before the first one, and where an earlier version made it.
    pub last_attempt_at: Option<Timestamp>,
    /// Class of the last failure.
    pub failure_type: Option<FailureType>,
    /// Message of the last failure, at most 256 characters.
    pub last_failure_reason: Option<String>,
    /// Time at which the row was inserted.
    pub created_at: Timestamp,
    /// Time at which the row was settled as SENT.
    pub sent_at: Option<Timestamp>,
}

/// Conditions that listed rows meet; `None` matches every row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowFilter {
    /// Rows with this status.
    pub status: Option<RowStatus>,
    /// Rows of this key.
    pub key: Option<EventKey>,
    /// Rows of this partition of the outbox.
    pub partition: Option<PartitionNo>,
    /// Rows of this event type.
    pub event_type: Option<String>,
    /// Rows whose last failure has this type.
    pub failure_type: Option<FailureType>,
    /// Rows inserted at least this long ago.
    pub older_than: Option<Duration>,
    /// Rows with a greater id than this one.
    pub after: Option<RowId>,
}

/// Selects the row to diagnose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowSelector {
    /// The key's first row that is not yet SENT, otherwise its latest row.
    Key(EventKey),
    /// The row of this event.
    Event(EventId),
}

/// Why a row is in its present state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowDiagnosis {
    /// Row that the selector matched.
    pub row: RowView,
    /// Earlier row of the same key that blocks it.
    pub head: Option<RowView>,
    /// Instance that holds the partition's lease.
    pub owner: Option<InstanceId>,
    /// Epoch of that lease.
    pub epoch: Epoch,
    /// Number of claimers that died with this row in their open batch.
    pub deaths: u32,
    /// Where the record of a SENT row is; `None` in every other state.
    pub sent_to: Option<RecordLocation>,
    /// Whether the row was published to its fallback instead of its topic.
    pub by_fallback: bool,
}

/// Cause that keeps every event of a partition from being sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartitionBlock {
    /// No broker is configured.
    NoBroker,
    /// No instance holds the partition's lease: none that relays runs, or none has acquired it yet.
    NoOwner,
}

impl PartitionBlock {
    /// The cause, as the end of a sentence.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoBroker => "no broker is configured (broker.kind = none), so nothing is sent",
            Self::NoOwner => "no instance that relays holds this partition",
        }
    }
}

/// Topic of a published record, with partition and offset where they are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordLocation {
    /// Full name of the topic.
    pub topic: Arc<str>,
    /// Partition and offset, where they are known: a batch that was resolved by its watermark has none.
    pub partition_offset: Option<(u32, u64)>,
}

impl RecordLocation {
    /// The location of a row's record: the position that its settlement recorded, else the topic of its event, or that topic's dead-letter topic.
    pub fn new(event_topic: &str, position: Option<Position>, by_fallback: bool) -> Self {
        match position {
            Some(Position { topic, partition, offset }) => Self { topic, partition_offset: Some((partition, offset)) },
            None if by_fallback => {
                Self { topic: outbox::topics::dead_letter_topic(event_topic).into(), partition_offset: None }
            }
            None => Self { topic: event_topic.into(), partition_offset: None },
        }
    }

    /// The position, where it is known.
    pub fn position(&self) -> Option<Position> {
        self.partition_offset.map(|(partition, offset)| Position { topic: Arc::clone(&self.topic), partition, offset })
    }
}

/// `order.events 3/17`, or the topic alone.
impl fmt::Display for RecordLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.topic)?;
        self.partition_offset.map_or(Ok(()), |(partition, offset)| write!(f, " {partition}/{offset}"))
    }
}

impl RowView {
    /// Time of the next attempt, while it is in the future.
    pub fn due_later(&self, now: Timestamp) -> Option<Timestamp> {
        self.next_attempt_at.filter(|due| *due > now)
    }
}

impl RowDiagnosis {
    /// The cause that keeps every event of the row's partition from being sent; `None` if neither the configuration nor the lease does.
    pub fn partition_block(&self, broker_configured: bool) -> Option<PartitionBlock> {
        if !broker_configured {
            return Some(PartitionBlock::NoBroker);
        }
        self.owner.is_none().then_some(PartitionBlock::NoOwner)
    }

    /// SENT, IN_FLIGHT, PARKED, BLOCKED_BY_HEAD, WAITING_FOR_RETRY or PENDING. A waiting row with an earlier row of its key before it is
    /// BLOCKED_BY_HEAD, whether its own next attempt is due or not.
    pub fn verdict(&self, now: Timestamp) -> &'static str {
        match self.row.status {
            RowStatus::Sent => "SENT",
            RowStatus::InFlight => "IN_FLIGHT",
            RowStatus::Parked => "PARKED",
            RowStatus::Pending | RowStatus::Failed if self.head.is_some() => "BLOCKED_BY_HEAD",
            RowStatus::Failed => "WAITING_FOR_RETRY",
            RowStatus::Pending if self.row.due_later(now).is_some() => "WAITING_FOR_RETRY",
            RowStatus::Pending => "PENDING",
        }
    }
}

/// Result of an operator action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperatorOutcome {
    /// The action changed this many rows.
    Done(u64),
    /// No row has this id.
    Missing,
    /// The row's status does not allow the action; nothing was changed.
    WrongStatus(RowStatus),
}

/// The outbox as operators use it.
#[async_trait]
pub trait OutboxOperators: Send + Sync {
    /// Lists at most `limit` rows in id order; SENT rows as long as the archive keeps them.
    async fn rows(&self, filter: &RowFilter, limit: u32) -> Result<Vec<RowView>, Error>;

    /// Reads one row by its id.
    async fn row(&self, id: RowId) -> Result<Option<RowView>, Error>;

    /// Explains the state of a row; `None` when the selector matches no row.
    async fn diagnose(&self, selector: RowSelector) -> Result<Option<RowDiagnosis>, Error>;

    /// Reads the event of a row in the form in which a claim returns it, whatever the row's status; `attempt` is the number of attempts
    /// made so far, at least 1. `None` when there is no such row or its event was deleted.
    async fn event(&self, id: RowId) -> Result<Option<ClaimedRow>, Error>;

    /// Lists at most `limit` entries of the audit table, newest first.
    async fn audit_entries(&self, filter: &AuditFilter, limit: u32) -> Result<Vec<AuditEntry>, Error>;

    /// Makes a FAILED or PARKED row due now; it keeps its position among the rows of its key. A parked row starts again with 0 attempts.
    async fn retry(&self, id: RowId, audit: &Audit) -> Result<OperatorOutcome, Error>;

    /// Parks a PENDING or FAILED row; later rows of its key wait behind it.
    async fn park(&self, id: RowId, audit: &Audit) -> Result<OperatorOutcome, Error>;

    /// Makes one PARKED row due now, as [`OutboxOperators::redrive`] does.
    async fn redrive_row(&self, id: RowId, audit: &Audit) -> Result<OperatorOutcome, Error>;

    /// [`RedriveMode::DryRun`] counts the PARKED rows that match the filter (its `status` is ignored). [`RedriveMode::Execute`] makes the
    /// first `limit` of them due and returns how many it changed. A store may change them in several transactions.
    ///
    /// # Errors
    /// [`Error::Unknown`] also where a transaction fails after others have changed rows.
    async fn redrive(
        &self,
        filter: &RowFilter,
        limit: u32,
        mode: RedriveMode,
        audit: &Audit,
    ) -> Result<OperatorOutcome, Error>;
}

/// The error of a redrive whose transaction failed: [`Error::Unknown`] if earlier ones had changed rows, because the redrive has changed something.
pub fn redrive_error_after(changed: u64, error: Error) -> Error {
    if changed == 0 { error } else { Error::Unknown(format!("{changed} rows were made due before: {error}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_of_a_later_transaction_of_a_redrive_is_an_unknown_outcome() {
        let failure = || Error::Unreachable("refused".into());

        assert!(matches!(redrive_error_after(0, failure()), Error::Unreachable(_)));
        let later = redrive_error_after(500, failure());
        assert!(matches!(later, Error::Unknown(text) if text.starts_with("500 rows were made due")));
    }
}
