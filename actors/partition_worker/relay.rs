//! Relay: one run of a partition worker. Begins a session if there is none, claims a batch, and sends it.
use std::sync::Arc;

use ports::broker::BrokerFailure;
use ports::outbox::{Claim, Claimed};
use ports::partitions::{AcquireReason, PartitionNo};

use super::batch_request::RunBatch;
use super::batch_sender::BatchSender;
use super::context::RelayContext;
use super::report::{BatchReport, BrokerSignal};
use super::run_result::RunResult;
use super::session::{PartitionSession, PartitionSessions, SessionStart};
use super::session_failure::SessionFailure;

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

    /// Moves one batch: claim, publish, settle.
    pub async fn run(
        &self,
        partition: PartitionNo,
        session: Option<PartitionSession>,
        reason: &mut AcquireReason,
        mut request: RunBatch,
    ) -> RunResult {
        let session = match session {
            Some(session) => session,
            None => {
                // An acquisition may take long: the cycle does not wait for it.
                request.cycle = None;
                match self.sessions.begin(partition, reason).await {
                    Ok(SessionStart::Began(session)) => session,
                    Ok(SessionStart::HeldElsewhere) => {
                        return RunResult::unknown(BatchReport { held_elsewhere: true, ..BatchReport::default() });
                    }
                    Err(SessionFailure { error, broker }) => {
                        let report = BatchReport { error: Some(error), broker, ..BatchReport::default() };
                        return RunResult::unknown(report);
                    }
                }
            }
        };
        self.claim_and_send(session, request).await
    }

    async fn claim_and_send(&self, mut session: PartitionSession, request: RunBatch) -> RunResult {
        let RelayContext { outbox, producers, options, metrics, book, .. } = &*self.context;
        let fence = session.fence.clone();
        let producer = match producers.claim(fence.partition).await {
            Ok(producer) => producer,
            Err(BrokerFailure { id, error }) => {
                let broker = BrokerSignal::Failed(id);
                let report = BatchReport { error: Some(error), broker, ..BatchReport::default() };
                return RunResult::known(session, report);
            }
        };
        let RunBatch { kind, probe, cycle } = request;
        let claim = Claim { fence, session: producer.session().clone(), limit: options.batch, kind };
        match outbox.claim(claim).await {
            Ok(Claimed::Batch(batch)) => {
                session.fence.counter = batch.token;
                metrics.outbox_batch_size.record(batch.rows.len());
                self.sender.send(session, producer, batch, probe, cycle).await
            }
            Ok(Claimed::Nothing { next_due, suspect_due }) => {
                RunResult::known(session, BatchReport { next_due, suspect_due, ..BatchReport::default() })
            }
            Ok(Claimed::Fenced) => {
                metrics.outbox_fenced_total.inc();
                book.lost(session.fence.partition);
                RunResult::unknown(BatchReport { more: true, ..BatchReport::default() })
            }
            Err(error) if error.outcome_unknown() => RunResult::failed(None, error),
            Err(error) => RunResult::failed(Some(session), error),
        }
    }

    /// Releases the partition, see [`PartitionSessions::hand_over`].
    pub async fn hand_over(
        &self,
        partition: PartitionNo,
        session: Option<PartitionSession>,
        reason: &mut AcquireReason,
    ) -> (bool, Option<PartitionSession>) {
        self.sessions.hand_over(partition, session, reason).await
    }
}
