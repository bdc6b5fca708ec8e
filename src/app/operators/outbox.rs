//! Operator actions on the outbox, shared by HTTP, console and command line: rows, diagnosis, retry, park, redrive, partitions, health.
use std::sync::Arc;

use domain::Timestamp;
use ports::clock::Clock;
use ports::operators::{
    Audit, AuditEntry, AuditFilter, AuditId, OperatorOutcome, OutboxOperators, RedriveMode, RowDiagnosis, RowFilter,
    RowSelector, RowView,
};
use ports::outbox::{ClaimedRow, OutboxStore, RowCounts, RowId, RowStatus};
use ports::partitions::{PartitionLeases, PartitionView};

use crate::error::QueryError;
use crate::health::{HealthSnapshot, SharedHealth};

/// Limit of rows on a page.
pub const ROWS_MAX: u32 = 500;

/// Outbox actions and views for operators.
///
/// Where a method says no more, it fails only with [`QueryError::Unavailable`] or, as an action or while the store closes,
/// [`QueryError::Unknown`]. Cancellation: a dropped view has no effect; a dropped action may still take effect, also after the drop.
pub struct OutboxOperations {
    outbox: Arc<dyn OutboxStore>,
    operators: Arc<dyn OutboxOperators>,
    leases: Arc<dyn PartitionLeases>,
    clock: Arc<dyn Clock>,
    health: SharedHealth,
}

/// At most [`ROWS_MAX`] rows and the id after them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowPage {
    /// Rows in id order.
    pub rows: Vec<RowView>,
    /// Id after which the next page begins, if there is one.
    pub next: Option<RowId>,
}

/// A page of the audit table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditPage {
    /// The entries of the page, the newest one first.
    pub entries: Vec<AuditEntry>,
    /// Entry after which the next page begins, if there is one.
    pub next: Option<AuditId>,
}

impl OutboxOperations {
    /// Creates the operator actions of one store.
    pub fn new(
        outbox: Arc<dyn OutboxStore>,
        operators: Arc<dyn OutboxOperators>,
        leases: Arc<dyn PartitionLeases>,
        clock: Arc<dyn Clock>,
        health: SharedHealth,
    ) -> Self {
        Self { outbox, operators, leases, clock, health }
    }

    /// The time of the wall clock, for crates that may not depend on `ports`: they compare it with tokens and show ages to people.
    pub fn now(&self) -> Timestamp {
        self.clock.wall()
    }

    /// The present time, which never goes back: for the ages of what this process has measured.
    pub fn monotonic_now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The latest health snapshot, without a call to the store.
    pub fn health(&self) -> Arc<HealthSnapshot> {
        self.health.read()
    }

    /// Lists a page of rows; `limit` is clamped to 1…[`ROWS_MAX`].
    pub async fn rows(&self, filter: &RowFilter, limit: u32) -> Result<RowPage, QueryError> {
        let limit = limit.clamp(1, ROWS_MAX);
        let (rows, next) = page(self.operators.rows(filter, limit + 1).await?, limit, |row| row.id);
        Ok(RowPage { rows, next })
    }

    /// Reads one row by its id.
    ///
    /// # Errors
    /// [`QueryError::NotFound`] without such a row.
    pub async fn row(&self, id: RowId) -> Result<RowView, QueryError> {
        self.operators.row(id).await?.ok_or(QueryError::NotFound)
    }

    /// Explains why a row is in its present state.
    ///
    /// # Errors
    /// [`QueryError::NotFound`] when the selector matches no row.
    pub async fn diagnose(&self, selector: RowSelector) -> Result<RowDiagnosis, QueryError> {
        self.operators.diagnose(selector).await?.ok_or(QueryError::NotFound)
    }

    /// Reads the event of a row, with its payload and what its headers are made of.
    ///
    /// # Errors
    /// [`QueryError::NotFound`] also when the row's event was deleted.
    pub async fn event(&self, id: RowId) -> Result<ClaimedRow, QueryError> {
        self.operators.event(id).await?.ok_or(QueryError::NotFound)
    }

    /// Lists a page of the audit table, newest first; `limit` is clamped to 1…[`ROWS_MAX`].
    pub async fn audit_entries(&self, filter: &AuditFilter, limit: u32) -> Result<AuditPage, QueryError> {
        let limit = limit.clamp(1, ROWS_MAX);
        let (entries, next) = page(self.operators.audit_entries(filter, limit + 1).await?, limit, |entry| entry.id);
        Ok(AuditPage { entries, next })
    }

    /// Makes a FAILED or PARKED row due now.
    ///
    /// # Errors
    /// [`QueryError::NotFound`] without such a row; [`QueryError::Conflict`] when it has another status. Neither changes anything.
    pub async fn retry(&self, id: RowId, operator: &str, reason: &str) -> Result<(), QueryError> {
        let audit = audit(operator, reason);
        changed_rows(self.operators.retry(id, &audit).await?).map(|_| ())
    }

    /// Makes one PARKED row due now.
    ///
    /// # Errors
    /// The same errors as [`OutboxOperations::retry`] returns.
    pub async fn redrive_row(&self, id: RowId, operator: &str, reason: &str) -> Result<(), QueryError> {
        let audit = audit(operator, reason);
        changed_rows(self.operators.redrive_row(id, &audit).await?).map(|_| ())
    }

    /// Parks a PENDING or FAILED row.
    ///
    /// # Errors
    /// The same errors as [`OutboxOperations::retry`] returns.
    pub async fn park(&self, id: RowId, operator: &str, reason: &str) -> Result<(), QueryError> {
        let audit = audit(operator, reason);
        changed_rows(self.operators.park(id, &audit).await?).map(|_| ())
    }

    /// Counts the parked rows that match; [`RedriveMode::Execute`] makes the first `limit` of them due and returns their number.
    pub async fn redrive(
        &self,
        filter: &RowFilter,
        limit: u32,
        mode: RedriveMode,
        operator: &str,
        reason: &str,
    ) -> Result<u64, QueryError> {
        let audit = audit(operator, reason);
        changed_rows(self.operators.redrive(filter, limit, mode, &audit).await?)
    }

    /// Lists every partition with its lease and depth.
    pub async fn partitions(&self) -> Result<Vec<PartitionView>, QueryError> {
        Ok(self.leases.overview().await?)
    }

    /// Counts rows by status, from the store.
    pub async fn depth(&self) -> Result<RowCounts, QueryError> {
        Ok(self.outbox.depth().await?)
    }
}

/// Divides one item more than a page has into the page and, if there is that item, the id after which the next page begins.
fn page<T>(mut items: Vec<T>, limit: u32, id: impl Fn(&T) -> i64) -> (Vec<T>, Option<i64>) {
    let more = items.len() > limit as usize;
    items.truncate(limit as usize);
    let next = if more { items.last().map(id) } else { None };
    (items, next)
}

fn audit(operator: &str, reason: &str) -> Audit {
    Audit { operator: operator.to_owned(), reason: reason.to_owned() }
}

fn changed_rows(outcome: OperatorOutcome) -> Result<u64, QueryError> {
    match outcome {
        OperatorOutcome::Done(rows) => Ok(rows),
        OperatorOutcome::Missing => Err(QueryError::NotFound),
        OperatorOutcome::WrongStatus(status) => {
            Err(QueryError::Conflict(format!("the row is {}; {}", status.as_str(), refusal_reason(status))))
        }
    }
}

/// Why an action does not apply to a row with this status.
fn refusal_reason(status: RowStatus) -> &'static str {
    match status {
        RowStatus::Pending => "it is already due, and is published after the earlier events of its key",
        RowStatus::Parked => "it is already parked",
        RowStatus::InFlight => "it is being published: try again in a moment",
        RowStatus::Failed | RowStatus::Sent => "only unsent rows can be changed",
    }
}
