//! Relay: one run of a partition worker. Begins a session if there is none, claims a batch, and sends it.
use std::sync::Arc;

use ports::broker::BrokerFailure;
use ports::outbox::{Claim, ClaimOutcome};
use ports::partitions::{AcquireReason, PartitionNo};

use super::batch_request::{ClaimMode, RunBatch};
use super::batch_sender::BatchSender;
use super::context::RelayContext;
use super::partition_session::PartitionSession;
use super::report::{BatchReport, BrokerSignal};
use super::run_result::RunResult;
use super::session::{PartitionSessions, SessionStart};
use super::session_failure::SessionFailure;
use super::settlement;

/// Shared by all workers of an instance; the caller keeps the session between runs.
pub struct Relay {
    context: Arc<RelayContext>,
    sessions: PartitionSessions,
    sender: BatchSender,
}

impl Relay {
    /// A relay between the outbox and the broker of this context.
    pub fn new(context: RelayContext) -> Self {
        let context = Arc::new(context);
        let sessions = PartitionSessions::new(Arc::clone(&context));
        let sender = BatchSender::new(Arc::clone(&context));
        Self { context, sessions, sender }
    }

    /// Settles what an earlier run published, and moves the next batch as far as the broker's acknowledgement.
    pub async fn run(
        &self,
        partition: PartitionNo,
        partition_session: Option<PartitionSession>,
        reason: &mut AcquireReason,
        request: RunBatch,
    ) -> RunResult {
        let partition_session = match partition_session {
            Some(partition_session) => partition_session,
            None => {
                // An acquisition may take long: the cycle does not wait for it.
                drop(request.cycle);
                match self.sessions.begin(partition, reason).await {
                    Ok(SessionStart::Started(partition_session)) => partition_session,
                    Ok(SessionStart::HeldElsewhere) => return RunResult::held_elsewhere(),
                    Err(SessionFailure { error, broker }) => {
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
                self.claim_and_send(partition_session, mode).await
            }
            None => self.settle(partition_session, BatchReport::default()).await,
        }
    }

    async fn settle(&self, mut partition_session: PartitionSession, report: BatchReport) -> RunResult {
        let settled = settlement::settle(&self.context, &mut partition_session).await;
        RunResult::settled(partition_session, settled, report)
    }

    async fn claim_and_send(&self, mut partition_session: PartitionSession, mode: ClaimMode) -> RunResult {
        let RelayContext { producers, options, metrics, local_leases, .. } = &*self.context;
        let fence = partition_session.fence.clone();
        let producer = match producers.claim(fence.partition).await {
            Ok(producer) => producer,
            Err(BrokerFailure { id, error }) => {
                let broker = BrokerSignal::Failed(id);
                let report = BatchReport { error: Some(error), broker, ..BatchReport::default() };
                return self.settle(partition_session, report).await;
            }
        };
        let claim = Claim { fence, session: producer.session().clone(), limit: options.batch, kind: mode.kind };
        let claimed = match settlement::settle_and_claim(&self.context, &mut partition_session, claim).await {
            Ok(claimed) => claimed,
            Err(failure) => return RunResult::unsettled(failure, BatchReport::default()),
        };
        match claimed {
            Ok(ClaimOutcome::Batch(batch)) => {
                partition_session.fence.counter = batch.token;
                metrics.outbox_batch_size.record(batch.rows.len());
                self.sender.send(partition_session, producer, batch, mode).await
            }
            Ok(ClaimOutcome::NoneDue { next_due, suspect_due }) => {
                RunResult::known(partition_session, BatchReport { next_due, suspect_due, ..BatchReport::default() })
            }
            Ok(ClaimOutcome::Fenced) => {
                metrics.outbox_fenced_total.inc();
                local_leases.remove(partition_session.fence.partition);
                local_leases.set_epoch_unknown(partition_session.fence.partition);
                RunResult::unknown(BatchReport { more: true, ..BatchReport::default() })
            }
            Err(error) if error.outcome_unknown() => RunResult::failed(None, error),
            Err(error) => RunResult::failed(Some(partition_session), error),
        }
    }

    /// Releases the partition, see [`PartitionSessions::hand_over`].
    pub async fn hand_over(
        &self,
        partition: PartitionNo,
        partition_session: Option<PartitionSession>,
        reason: &mut AcquireReason,
    ) -> (bool, Option<PartitionSession>) {
        self.sessions.hand_over(partition, partition_session, reason).await
    }
}
