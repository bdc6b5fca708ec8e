//! The request for one batch of a partition.
use actix::prelude::*;
use ports::outbox::ClaimKind;
use tokio::time::Instant;

use super::cycle_guard::CycleGuard;
use super::report::BatchReport;

/// Settle the batch that the broker has acknowledged, if there is one, and move the next one. The mailbox holds one of these, and its permit
/// stays taken until the batch is done: a full mailbox *is* the backpressure.
#[derive(Debug, Message)]
#[rtype(result = "BatchReport")]
pub struct RunBatch {
    /// Which rows may be claimed; `None` only settles.
    pub claim: Option<ClaimKind>,
    /// Whether this is the circuit breaker's only probe: its failure costs no attempt.
    pub probe: bool,
    /// When a commit of this instance woke the partition, if one did.
    pub woken_at: Option<Instant>,
    /// The cycle that the batch belongs to, if it began with others.
    pub cycle: Option<CycleGuard>,
}
