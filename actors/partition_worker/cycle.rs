//! One turn of a worker: a session if there is none, a claim, and the claimed batch's way out.
use std::sync::Arc;

use app::relay::Envelope;
use ports::Error;
use ports::broker;
use ports::outbox::{Claim, Claimed, OutboxStore};
use ports::partitions::{AcquireReason, InstanceId, PartitionLeases, PartitionNo};
use supervision::Mailbox;
use telemetry::Metrics;

use super::session::{Begun, Session, Trouble};
use super::{Report, Run};
use crate::lanes::Lanes;
use crate::lease_book::LeaseBook;
use crate::retry_handler::RetryHandler;

/// What all workers share.
pub struct Relay {
    /// Where events go.
    pub broker: Arc<dyn broker::Broker>,
    /// Where they come from.
    pub outbox: Arc<dyn OutboxStore>,
    /// Who may move them.
    pub leases: Arc<dyn PartitionLeases>,
    /// Our way to the broker.
    pub lanes: Lanes,
    /// How long our leases last.
    pub book: Arc<LeaseBook>,
    /// Decides about failures.
    pub retry: Mailbox<RetryHandler>,
    /// Our name.
    pub instance: InstanceId,
    /// What our records have in common.
    pub envelope: Envelope,
    /// Limits.
    pub options: app::relay::Options,
    /// Stamps for measured ages.
    pub clock: Arc<dyn ports::clock::Clock>,
    /// Counters.
    pub metrics: Arc<Metrics>,
}

/// How a turn ended: the session to go on with, or none when what we believed may be wrong.
pub(super) struct End {
    pub session: Option<Session>,
    pub report: Report,
}

impl End {
    pub(super) fn sure(session: Session, report: Report) -> Self {
        Self { session: Some(session), report }
    }

    /// We do not know what a statement did: begin anew, under a new epoch, by finding out.
    pub(super) fn unsure(report: Report) -> Self {
        Self { session: None, report }
    }

    pub(super) fn failed(session: Option<Session>, error: Error) -> Self {
        Self { session, report: Report { error: Some(error), ..Report::default() } }
    }
}

impl Relay {
    pub(super) async fn run(
        &self,
        partition: PartitionNo,
        session: Option<Session>,
        because: &mut AcquireReason,
        run: Run,
    ) -> End {
        let session = match session {
            Some(session) => session,
            None => match self.begin(partition, because).await {
                Ok(Begun::Session(session)) => session,
                Ok(Begun::HeldElsewhere) => {
                    return End::unsure(Report { held_elsewhere: true, ..Report::default() });
                }
                Err(Trouble { error, broker }) => {
                    return End::unsure(Report { error: Some(error), broker, ..Report::default() });
                }
            },
        };
        self.claim(session, run).await
    }

    async fn claim(&self, mut session: Session, run: Run) -> End {
        let claim = Claim {
            fence: session.fence.clone(),
            session: session.lane.clone(),
            limit: self.options.batch,
            kind: run.kind,
        };
        match self.outbox.claim(claim).await {
            Ok(Claimed::Batch(batch)) => {
                session.fence.counter = batch.token;
                self.metrics.outbox_batch_size.record(batch.rows.len());
                self.send(session, batch, run.probe).await
            }
            Ok(Claimed::Nothing { next_due, suspect_due }) => {
                End::sure(session, Report { next_due, suspect_due, ..Report::default() })
            }
            Ok(Claimed::Fenced) => {
                self.metrics.outbox_fenced_total.inc();
                self.book.lost(session.fence.partition);
                End::unsure(Report { more: true, ..Report::default() })
            }
            Err(error) if error.outcome_unknown() => End::failed(None, error),
            Err(error) => End::failed(Some(session), error),
        }
    }
}
