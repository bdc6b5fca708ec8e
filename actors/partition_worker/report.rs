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
    /// Another instance holds the partition's lease.
    pub held_elsewhere: bool,
    /// A batch of this process may be open: the next run resolves it first.
    pub unresolved: bool,
    /// The store has not settled the acknowledged batch: the next run does.
    pub unsettled: bool,
    /// The batch's part in its cycle, which ends after the report of its last batch.
    pub cycle: Option<CycleGuard>,
    /// The error that ended the batch; the partition runs again after a pause.
    pub error: Option<Error>,
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
