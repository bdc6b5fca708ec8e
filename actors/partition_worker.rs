//! PartitionWorker: moves one partition's rows, one batch at a time: claim → publish → settle, under its lease and its lane's session.
mod batch;
mod cycle;
mod session;

use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use ports::Error;
use ports::outbox::ClaimKind;
use ports::partitions::{AcquireReason, PartitionNo};
use supervision::{ExitReason, Incarnation, MailboxMessage};

pub use cycle::Relay;
use session::Session;

use crate::retry_handler;

/// Do one batch. The mailbox holds one of these and its permit is kept until the batch is done: a full mailbox *is* the backpressure.
#[derive(Message)]
#[rtype(result = "Report")]
pub struct Run {
    /// What may be claimed.
    pub kind: ClaimKind,
    /// Whether this is the breaker's one probe: its failure burns no attempt.
    pub probe: bool,
}

/// Give the partition back, if nothing of it is in flight.
#[derive(Message)]
#[rtype(result = "bool")]
pub struct HandOver;

/// What a batch came to.
#[derive(Debug, Default)]
pub struct Report {
    /// Rows the broker acknowledged.
    pub sent: usize,
    /// More rows may be due: run again without a pause.
    pub more: bool,
    /// When the next waiting row is due.
    pub next_due: Option<Duration>,
    /// A suspect is due: grant a trial.
    pub suspect_due: bool,
    /// What this says about the broker.
    pub broker: Broker,
    /// Who holds the partition, when it is not us.
    pub held_elsewhere: bool,
    /// What went wrong; run again after a pause.
    pub error: Option<Error>,
}

/// What a batch says about the broker's health.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Broker {
    /// Nothing: it was not asked.
    #[default]
    NotAsked,
    /// It works.
    Works,
    /// It failed for a reason of its own.
    Failed,
}

/// The actor.
pub struct PartitionWorker {
    relay: Arc<Relay>,
    partition: PartitionNo,
    session: Option<Session>,
    because: AcquireReason,
}

impl PartitionWorker {
    /// A worker that holds nothing yet, and knows how the one before it ended.
    pub fn new(relay: Arc<Relay>, partition: PartitionNo, incarnation: &Incarnation) -> Self {
        Self { relay, partition, session: None, because: because(incarnation) }
    }

    fn finished(&mut self, end: cycle::End, because: AcquireReason) -> Report {
        let cycle::End { session, report } = end;
        self.because = because;
        self.session = session;
        report
    }
}

/// Whether a row that the last life had in hand may have been its death. Whoever only went down with another is no witness, save where
/// that other is the RetryHandler: it was asked about rows.
fn because(incarnation: &Incarnation) -> AcquireReason {
    match &incarnation.previous_exit {
        None => AcquireReason::Vacant,
        Some(ExitReason::Sibling { failed }) if failed == retry_handler::NAME => AcquireReason::WorkerDied,
        Some(ExitReason::Sibling { .. } | ExitReason::ShutdownTimeout | ExitReason::Shutdown | ExitReason::Normal) => {
            AcquireReason::Uncertain
        }
        Some(_) => AcquireReason::WorkerDied,
    }
}

impl Actor for PartitionWorker {
    type Context = Context<Self>;
}

supervision::supervised!(PartitionWorker);

impl Handler<MailboxMessage<Run>> for PartitionWorker {
    type Result = ResponseActFuture<Self, Report>;

    fn handle(&mut self, message: MailboxMessage<Run>, ctx: &mut Self::Context) -> Self::Result {
        let (run, permit) = message.begin(ctx);
        let (relay, partition, mut because) = (Arc::clone(&self.relay), self.partition, self.because);
        let session = self.session.take();
        // Boxed apart: the whole journey of a batch is one large future.
        let work = Box::pin(async move { (relay.run(partition, session, &mut because, run).await, because) });
        Box::pin(work.into_actor(self).map(move |(end, because), this, _| {
            let _permit = permit;
            this.finished(end, because)
        }))
    }
}

impl Handler<MailboxMessage<HandOver>> for PartitionWorker {
    type Result = ResponseActFuture<Self, bool>;

    fn handle(&mut self, message: MailboxMessage<HandOver>, ctx: &mut Self::Context) -> Self::Result {
        let (HandOver, permit) = message.begin(ctx);
        let (relay, partition, mut because) = (Arc::clone(&self.relay), self.partition, self.because);
        let session = self.session.take();
        let work = Box::pin(async move { (relay.hand_over(partition, session, &mut because).await, because) });
        Box::pin(work.into_actor(self).map(move |((given, session), because), this, _| {
            let _permit = permit;
            (this.session, this.because) = (session, because);
            given
        }))
    }
}
