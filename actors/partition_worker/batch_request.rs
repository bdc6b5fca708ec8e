//! The request for one batch of a partition.
use actix::prelude::*;
use ports::outbox::ClaimKind;
use tokio::time::Instant;

use super::cycle_guard::CycleGuard;
use super::report::BatchReport;

/// Settle the batch that the broker has acknowledged, if there is one, and claim and publish the next one. The mailbox holds one such message, and
/// its permit stays taken until the batch is done: a full mailbox *is* the backpressure.
#[derive(Debug, Message)]
#[rtype(result = "BatchReport")]
pub struct RunBatch {
    /// How to claim the next batch; `None` only settles.
    pub claim: Option<ClaimMode>,
    /// When a commit of this instance woke the partition, if one did.
    pub woken_at: Option<Instant>,
    /// The cycle that the batch belongs to, if it began with others.
    pub cycle: Option<CycleGuard>,
}

/// Which rows a run claims, and under which permit of the circuit breaker it sends them.
#[derive(Clone, Copy, Debug)]
pub struct ClaimMode {
    /// Ordinary rows, or one suspect.
    pub kind: ClaimKind,
    /// What the breaker allows.
    pub permit: SendPermit,
}

/// The permit of the circuit breaker to send one batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendPermit {
    /// The breaker is closed.
    Normal,
    /// The batch is the breaker's only probe: its failure costs no attempt.
    Probe,
}
