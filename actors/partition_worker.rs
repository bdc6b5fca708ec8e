//! PartitionWorker: publishes the rows of one partition, one batch at a time, under its lease and a producer session. A run claims and publishes
//! a batch; the next run settles that batch, in one transaction with its own claim.
pub mod acquire_failure;
pub mod batch_request;
mod batch_sender;
pub mod context;
pub mod cycle_guard;
mod held_partition;
mod in_flight_batch;
pub mod local_leases;
mod partition_acquirer;
pub mod producer_sessions;
mod published_log;
pub mod relay;
pub mod report;
mod run_result;
mod settlement;

use std::sync::Arc;

use actix::prelude::*;
use ports::partitions::{AcquireReason, PartitionNo};
use supervision::{ExitReason, Incarnation, MailboxMessage};

use crate::retry_handler;
use acquire_failure::AcquireFailure;
use batch_request::RunBatch;
use held_partition::HeldPartition;
use partition_acquirer::HandoverResult;
use relay::Relay;
use report::BatchReport;
use run_result::RunResult;

/// Release the partition. An error may leave the lease with this instance; the message may be repeated.
#[derive(Message)]
#[rtype(result = "Result<(), AcquireFailure>")]
pub struct HandOver;

/// The worker of one partition; its mailbox survives restarts.
pub struct PartitionWorker {
    relay: Arc<Relay>,
    partition: PartitionNo,
    held: Option<HeldPartition>,
    reason: AcquireReason,
}

impl PartitionWorker {
    /// A worker without a lease. `incarnation` says how the worker before it ended.
    pub fn new(relay: Arc<Relay>, partition: PartitionNo, incarnation: &Incarnation) -> Self {
        Self { relay, partition, held: None, reason: acquire_reason(incarnation) }
    }
}

/// Whether a row of the predecessor's batch may have caused its death. A predecessor that stopped because a sibling failed says nothing
/// about its rows, unless that sibling is the RetryHandler, which handles rows.
fn acquire_reason(incarnation: &Incarnation) -> AcquireReason {
    match &incarnation.previous_exit {
        None => AcquireReason::Unowned,
        Some(ExitReason::Sibling { failed }) if failed == retry_handler::NAME => AcquireReason::WorkerDied,
        Some(ExitReason::Sibling { .. } | ExitReason::ShutdownTimeout | ExitReason::Shutdown | ExitReason::Normal) => {
            AcquireReason::OutcomeUnknown
        }
        Some(_) => AcquireReason::WorkerDied,
    }
}

impl Actor for PartitionWorker {
    type Context = Context<Self>;
}

supervision::supervised!(PartitionWorker);

impl Handler<MailboxMessage<RunBatch>> for PartitionWorker {
    type Result = ResponseActFuture<Self, BatchReport>;

    fn handle(&mut self, message: MailboxMessage<RunBatch>, ctx: &mut Self::Context) -> Self::Result {
        let (batch, permit) = message.begin(ctx);
        let (relay, partition, mut reason) = (Arc::clone(&self.relay), self.partition, self.reason);
        let held = self.held.take();
        let cycle = batch.cycle.clone().filter(|_| held.is_some());
        // Boxed on its own: the future of a whole batch is large.
        let run = Box::pin(async move { (relay.run(partition, held, &mut reason, batch).await, reason) });
        Box::pin(run.into_actor(self).map(move |(RunResult { held, report }, reason), this, _| {
            let _permit = permit;
            (this.held, this.reason) = (held, reason);
            BatchReport { cycle, ..report }
        }))
    }
}

impl Handler<MailboxMessage<HandOver>> for PartitionWorker {
    type Result = ResponseActFuture<Self, Result<(), AcquireFailure>>;

    fn handle(&mut self, message: MailboxMessage<HandOver>, ctx: &mut Self::Context) -> Self::Result {
        let (HandOver, permit) = message.begin(ctx);
        let (relay, partition, mut reason) = (Arc::clone(&self.relay), self.partition, self.reason);
        let held = self.held.take();
        let handover = Box::pin(async move { (relay.hand_over(partition, held, &mut reason).await, reason) });
        Box::pin(handover.into_actor(self).map(move |(result, reason), this, _| {
            let _permit = permit;
            this.reason = reason;
            match result {
                HandoverResult::Released => Ok(()),
                HandoverResult::NotReleased { held, failure } => {
                    this.held = held;
                    Err(failure)
                }
            }
        }))
    }
}
