//! The request for one batch of a partition.
use actix::prelude::*;
use ports::outbox::ClaimKind;

use super::cycle_ticket::CycleTicket;
use super::report::BatchReport;

/// Move one batch. The mailbox holds one of these and its permit stays taken until the batch is done: a full mailbox *is* the backpressure.
#[derive(Debug, Message)]
#[rtype(result = "BatchReport")]
pub struct RunBatch {
    /// Which rows may be claimed.
    pub kind: ClaimKind,
    /// Whether this is the circuit breaker's only probe: its failure costs no attempt.
    pub probe: bool,
    /// The cycle that the batch belongs to, if it began with others.
    pub cycle: Option<CycleTicket>,
}
