//! The report that a worker sends back for each batch.
use std::time::Duration;

use ports::Error;
use ports::broker::FailureId;

use super::cycle_guard::CycleGuard;

/// Result of one batch.
#[derive(Debug, Default)]
pub struct BatchReport {
    /// Number of rows that the broker acknowledged.
    pub sent: usize,
    /// More rows may be due: the partition runs again without a pause.
    pub more: bool,
    /// Time until the next waiting row is due.
    pub next_due: Option<Duration>,
    /// A suspect row is due: the partition needs a trial.
    pub suspect_due: bool,
    /// Evidence of this batch about the broker's health.
    pub broker: BrokerSignal,
    /// Whether a batch of the partition may still be open.
    pub end: RunEnd,
    /// Keeps the batch's cycle open until the publisher has this report: a cycle ends after the report of its last batch.
    pub cycle: Option<CycleGuard>,
    /// The error that ended the batch; the partition runs again after a pause.
    pub error: Option<Error>,
}

/// Whether a batch of the partition may still be open after a run; decides when the schedule runs the partition again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RunEnd {
    /// The partition has no open batch of this process.
    #[default]
    Resolved,
    /// The broker has acknowledged the batch; the next run of the partition settles it.
    Unsettled,
    /// The outcome of a batch is unknown; the next run of the partition resolves it first.
    Unresolved,
    /// Another instance holds the partition's lease, and resolves an open batch.
    HeldElsewhere,
}

/// Evidence of one batch about the broker's health; the circuit breaker counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BrokerSignal {
    /// The batch made no call that says anything about the broker.
    #[default]
    None,
    /// The broker acknowledged records.
    Acknowledged,
    /// The broker failed, and no row caused it. Batches of one transaction report the same failure.
    Failed(FailureId),
}
