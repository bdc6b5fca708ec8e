//! Relay: one run of a partition worker. Acquires the partition unless it is held, claims a batch, and sends it.
use std::sync::Arc;

use ports::broker::BrokerFailure;
use ports::outbox::{Claim, ClaimOutcome};
use ports::partitions::{AcquireReason, PartitionNo};

use super::acquire_failure::AcquireFailure;
use super::batch_request::{ClaimMode, RunBatch};
use super::batch_sender::BatchSender;
use super::context::RelayContext;
use super::held_partition::HeldPartition;
use super::partition_acquirer::{AcquireResult, HandoverResult, PartitionAcquirer};
use super::report::{BatchReport, BrokerSignal};
use super::run_result::RunResult;
use super::settlement::{self, SettleAndClaimFailure};

/// Shared by all workers of an instance; the caller keeps the held partition between runs.
pub struct Relay {
    context: Arc<RelayContext>,
    acquirer: PartitionAcquirer,
    sender: BatchSender,
}

impl Relay {
    /// A relay between the outbox and the broker of this context.
    pub fn new(context: RelayContext) -> Self {
        let context = Arc::new(context);
        let acquirer = PartitionAcquirer::new(Arc::clone(&context));
        let sender = BatchSender::new(Arc::clone(&context));
        Self { context, acquirer, sender }
    }

    /// Settles the batch that an earlier run published, and claims and publishes the next one until the broker has acknowledged it.
    pub async fn run(
        &self,
        partition: PartitionNo,
        held: Option<HeldPartition>,
        reason: &mut AcquireReason,
        request: RunBatch,
    ) -> RunResult {
        let held = match held {
            Some(held) => held,
            None => {
                // An acquisition may take long: the cycle does not wait for it.
                drop(request.cycle);
                match self.acquirer.acquire(partition, reason).await {
                    Ok(AcquireResult::Acquired(held)) => held,
                    Ok(AcquireResult::HeldElsewhere) => return RunResult::held_elsewhere(),
                    Err(AcquireFailure { error, broker }) => {
                        let report = BatchReport { error: Some(error), broker, ..BatchReport::default() };
                        return RunResult::unknown(report);
                    }
                }
            }
        };
        match request.claim {
            Some(mode) => {
                if let Some(woken_at) = request.woken_at {
                    self.context.metrics.outbox_wake_up_seconds.record(woken_at.elapsed());
                }
                self.claim_and_send(held, mode).await
            }
            None => self.settle(held, BatchReport::default()).await,
        }
    }

    async fn settle(&self, mut held: HeldPartition, report: BatchReport) -> RunResult {
        let settled = settlement::settle(&self.context, &mut held).await;
        RunResult::settled(held, settled, report)
    }

    async fn claim_and_send(&self, mut held: HeldPartition, mode: ClaimMode) -> RunResult {
        let RelayContext { producers, options, metrics, local_leases, .. } = &*self.context;
        let fence = held.fence.clone();
        let producer = match producers.claim(fence.partition).await {
            Ok(producer) => producer,
            Err(BrokerFailure { id, error }) => {
                let broker = BrokerSignal::Failed(id);
                let report = BatchReport { error: Some(error), broker, ..BatchReport::default() };
                return self.settle(held, report).await;
            }
        };
        let claim = Claim { fence, session: producer.session().clone(), limit: options.batch, kind: mode.kind };
        match settlement::settle_and_claim(&self.context, &mut held, claim).await {
            Ok(ClaimOutcome::Batch(batch)) => {
                held.fence.counter = batch.token;
                metrics.outbox_batch_size.record(batch.rows.len());
                self.sender.send(held, producer, batch, mode).await
            }
            Ok(ClaimOutcome::NoneDue { next_due, suspect_due }) => {
                RunResult::known(held, BatchReport { next_due, suspect_due, ..BatchReport::default() })
            }
            Ok(ClaimOutcome::Fenced) => {
                metrics.outbox_fenced_total.inc();
                local_leases.remove(held.fence.partition, held.fence.epoch);
                // After the end of all acquisitions the lease was released without this worker.
                if !local_leases.is_closed() {
                    local_leases.set_epoch_unknown(held.fence.partition);
                }
                RunResult::unknown(BatchReport { more: true, ..BatchReport::default() })
            }
            Err(SettleAndClaimFailure::Settlement(failure)) => RunResult::unsettled(failure, BatchReport::default()),
            Err(SettleAndClaimFailure::Claim(error)) if error.outcome_unknown() => RunResult::failed(None, error),
            Err(SettleAndClaimFailure::Claim(error)) => RunResult::failed(Some(held), error),
        }
    }

    /// Releases the partition, see [`PartitionAcquirer::hand_over`].
    pub async fn hand_over(
        &self,
        partition: PartitionNo,
        held: Option<HeldPartition>,
        reason: &mut AcquireReason,
    ) -> HandoverResult {
        self.acquirer.hand_over(partition, held, reason).await
    }
}
