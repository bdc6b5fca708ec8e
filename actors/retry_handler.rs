//! RetryHandler: decides what becomes of events that did not go (policy), writes the fenced exclusion, and answers with the store's answer.
use std::sync::Arc;

use actix::prelude::*;
use app::chain::{self, Failure, Poison, Rules, Step};
use app::gate::Gate;
use app::relay::{Refused, cut};
use ports::Error;
use ports::clock::Rng;
use ports::outbox::{ClaimedRow, Disposition, Exclusion, FencedOutcome, OutboxStore, RowId};
use ports::partitions::{Counter, Fence, Token};
use supervision::MailboxMessage;
use telemetry::Metrics;

/// Its name among its siblings.
pub const NAME: &str = "retry-handler";

/// Rows of an open batch that did not go. Each is named once; the later rows of their keys go back by themselves.
#[derive(Message)]
#[rtype(result = "Result<Excluded, Error>")]
pub struct Exclude {
    /// The lease.
    pub fence: Fence,
    /// The batch.
    pub token: Token,
    /// Its rows.
    pub rows: Arc<[ClaimedRow]>,
    /// Which did not go, and why.
    pub refused: Vec<Refused>,
}

/// What was decided and written.
#[derive(Debug)]
pub enum Excluded {
    /// The exclusion stands; these go to their fallback under the same token.
    Done {
        /// The counter to name next.
        counter: Counter,
        /// Rows that were taken out.
        out: Vec<RowId>,
        /// Rows that go to their fallback instead.
        fallback: Vec<Refused>,
    },
    /// The lease has passed on: nothing was changed.
    Stale,
}

/// The actor.
pub struct RetryHandler {
    outbox: Arc<dyn OutboxStore>,
    rules: Arc<Rules>,
    gate: Arc<Gate>,
    dice: Arc<dyn Rng>,
    metrics: Arc<Metrics>,
}

impl RetryHandler {
    /// A handler with nothing in hand.
    pub fn new(
        outbox: Arc<dyn OutboxStore>,
        rules: Arc<Rules>,
        gate: Arc<Gate>,
        dice: Arc<dyn Rng>,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self { outbox, rules, gate, dice, metrics }
    }

    fn sort(&self, rows: &[ClaimedRow], refused: Vec<Refused>) -> (Vec<Exclusion>, Vec<Refused>) {
        let (mut exclusions, mut fallback) = (Vec::new(), Vec::new());
        for refused in refused {
            let Some(row) = rows.iter().find(|row| row.id == refused.row) else { continue };
            let in_fallback = refused.in_fallback;
            let failure = Failure { kind: &row.kind, attempt: row.attempt, fault: refused.fault, in_fallback };
            let step = chain::next(&self.rules, failure, self.gate.stage().retry_factor(), self.dice.fraction());
            self.count(&refused, step);
            match fate(step) {
                // A payload that is gone can go nowhere, not even to a fallback.
                None if row.payload.is_some() => fallback.push(refused),
                fate => exclusions.push(Exclusion {
                    row: row.id,
                    disposition: fate.unwrap_or(Disposition::ParkKey),
                    failure_type: refused.failure_type,
                    reason: cut(&refused.reason).to_owned(),
                }),
            }
        }
        (exclusions, fallback)
    }

    fn count(&self, refused: &Refused, step: Step) {
        self.metrics.retry_classification_count.with([refused.fault.as_str()]).inc();
        match step {
            Step::Retry(delay) => {
                self.metrics.outbox_retry_count.inc();
                self.metrics.retry_delay_ms.record(delay);
            }
            Step::Fallback => {}
            Step::Park(_) => self.metrics.outbox_entries_failed.inc(),
        }
    }
}

fn fate(step: Step) -> Option<Disposition> {
    match step {
        Step::Retry(delay) => Some(Disposition::Retry(delay)),
        Step::Fallback => None,
        Step::Park(Poison::BlockKey) => Some(Disposition::ParkKey),
        Step::Park(Poison::SkipRow) => Some(Disposition::ParkRow),
    }
}

impl Actor for RetryHandler {
    type Context = Context<Self>;
}

supervision::supervised!(RetryHandler);

impl Handler<MailboxMessage<Exclude>> for RetryHandler {
    type Result = ResponseActFuture<Self, Result<Excluded, Error>>;

    fn handle(&mut self, message: MailboxMessage<Exclude>, ctx: &mut Self::Context) -> Self::Result {
        let (Exclude { fence, token, rows, refused }, permit) = message.begin(ctx);
        let (exclusions, fallback) = self.sort(&rows, refused);
        let outbox = Arc::clone(&self.outbox);
        let work = async move {
            let _permit = permit;
            let out: Vec<RowId> = exclusions.iter().map(|exclusion| exclusion.row).collect();
            if exclusions.is_empty() {
                return Ok(Excluded::Done { counter: fence.counter, out, fallback });
            }
            let changed = outbox.exclude(&fence, token, &exclusions).await?;
            log(&exclusions, &rows);
            Ok(match changed {
                FencedOutcome::Done { counter, .. } => Excluded::Done { counter, out, fallback },
                FencedOutcome::Stale => Excluded::Stale,
            })
        };
        Box::pin(work.into_actor(self))
    }
}

/// A parked event needs a human; one that is retried needs nobody.
fn log(exclusions: &[Exclusion], rows: &[ClaimedRow]) {
    for exclusion in exclusions {
        let Some(row) = rows.iter().find(|row| row.id == exclusion.row) else { continue };
        let (event_id, order_id, attempt) = (row.event_id, row.key, row.attempt);
        let (row, error, failure_type) = (exclusion.row, exclusion.reason.as_str(), exclusion.failure_type.as_str());
        match exclusion.disposition {
            Disposition::Retry(delay) => tracing::warn!(
                event = "event_failed", %event_id, %order_id, row, attempt, failure_type, error,
                delay_ms = delay.as_millis() as u64, "an event did not go and will be tried again"
            ),
            Disposition::ParkKey | Disposition::ParkRow => tracing::error!(
                event = "event_parked", %event_id, %order_id, row, attempt, failure_type, error,
                "an event was parked and waits for a human"
            ),
        }
    }
}
