//! RetryHandler: decides about events that failed (retry, fallback, park), writes the fenced exclusion, and returns the store's result.
pub mod parked_row;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use app::admission::write_gate::WriteGate;
use app::relay::RefusedRow;
use app::relay::chain::{self, ChainRules, ChainStep, PublishFailure};
use ports::clock::Rng;
use ports::orders::order_of_event;
use ports::outbox::{ClaimedRow, Disposition, Exclusion, ExclusionOutcome, OutboxStore, RowId};
use ports::partitions::{Counter, LeaseFence, Token};
use ports::{Error, FaultClass};
use supervision::{MailboxMessage, SupervisionBus};
use telemetry::Metrics;
use tracing::field::display;

use parked_row::ParkedRow;

/// Name of this actor below the relay supervisor.
pub const NAME: &str = "retry-handler";

/// Excludes failed rows from an open batch. Each failed row is named once; the store returns the later rows of their keys with them.
#[derive(Message)]
#[rtype(result = "Result<ExclusionReply, Error>")]
pub struct Exclude {
    /// The lease that the batch was claimed under.
    pub fence: LeaseFence,
    /// Token of the open batch.
    pub token: Token,
    /// All rows of the batch.
    pub rows: Arc<[ClaimedRow]>,
    /// The failed rows with their errors.
    pub refused: Vec<RefusedRow>,
}

/// Result of an exclusion.
#[derive(Debug)]
pub enum ExclusionReply {
    /// The store has written the exclusion.
    Done {
        /// The counter for the next fenced write.
        counter: Counter,
        /// The token of the batch from now on: a new one if rows left it. Every later statement (publish, settle, resolve) must name it.
        token: Token,
        /// The excluded rows. The later rows of their keys have left the batch with them.
        excluded: Vec<RowId>,
        /// Rows that stay in the batch and go to their fallback topic.
        fallback: Vec<RefusedRow>,
    },
    /// The fence or the token is out of date, because another instance owns the partition or the batch changed: nothing was changed.
    Stale,
}

/// Applies the retry rules; keeps no state of its own.
pub struct RetryHandler {
    outbox: Arc<dyn OutboxStore>,
    rules: Arc<ChainRules>,
    gate: Arc<WriteGate>,
    rng: Arc<dyn Rng>,
    metrics: Arc<Metrics>,
    bus: SupervisionBus,
}

impl RetryHandler {
    /// A handler that applies these rules.
    pub fn new(
        outbox: Arc<dyn OutboxStore>,
        rules: Arc<ChainRules>,
        gate: Arc<WriteGate>,
        rng: Arc<dyn Rng>,
        metrics: Arc<Metrics>,
        bus: SupervisionBus,
    ) -> Self {
        Self { outbox, rules, gate, rng, metrics, bus }
    }

    /// Decides what follows for each failed row.
    fn decide(&self, rows: &[ClaimedRow], refused: Vec<RefusedRow>) -> ExclusionDecisions {
        let ExclusionDecisions { mut exclusions, mut fallback, mut steps } = ExclusionDecisions::default();
        let rows = by_id(rows);
        for refused in refused {
            let Some(row) = rows.get(&refused.row) else { continue };
            let in_fallback = refused.in_fallback;
            let (topic, event_type, attempt, fault) = (&row.topic, &row.event_type, row.attempt, refused.fault);
            let (is_outage, has_payload) = (refused.is_outage, row.payload.is_some());
            let failure = PublishFailure { topic, event_type, attempt, fault, is_outage, in_fallback, has_payload };
            let step = chain::next_step(&self.rules, failure, self.gate.stage().retry_factor(), self.rng.fraction());
            steps.push((refused.fault, step));
            match disposition(step) {
                None => fallback.push(refused),
                Some(disposition) => exclusions.push(Exclusion {
                    row: row.id,
                    attempts: self.rules.attempts_counted(failure),
                    disposition,
                    failure_type: refused.failure_type,
                    reason: outbox::truncate_reason(&refused.reason),
                }),
            }
        }
        ExclusionDecisions { exclusions, fallback, steps }
    }
}

/// The rows of a batch by their ids: each row of a large batch may be refused.
fn by_id(rows: &[ClaimedRow]) -> HashMap<RowId, &ClaimedRow> {
    rows.iter().map(|row| (row.id, row)).collect()
}

/// The decisions on the failed rows of a batch.
#[derive(Default)]
struct ExclusionDecisions {
    /// Rows that leave the batch.
    exclusions: Vec<Exclusion>,
    /// Rows that stay in the batch and go to their fallback.
    fallback: Vec<RefusedRow>,
    /// The step of each failed row, for the metrics.
    steps: Vec<(FaultClass, ChainStep)>,
}

/// Counts steps that the store has confirmed, or that need no confirmation.
fn count(metrics: &Metrics, steps: &[(FaultClass, ChainStep)]) {
    for (fault, step) in steps {
        metrics.retry_classification_count.with([fault.as_str()]).inc();
        match step {
            ChainStep::Retry(delay) => {
                metrics.outbox_retry_count.inc();
                metrics.retry_delay_ms.record(*delay);
            }
            ChainStep::Fallback => {}
            ChainStep::Park(_) => metrics.outbox_entries_failed.inc(),
        }
    }
}

/// The store's part of a step; `None` for a fallback, which stays in the batch.
fn disposition(step: ChainStep) -> Option<Disposition> {
    match step {
        ChainStep::Retry(delay) => Some(Disposition::Retry(delay)),
        ChainStep::Fallback => None,
        ChainStep::Park(poison) => Some(poison.disposition()),
    }
}

impl Actor for RetryHandler {
    type Context = Context<Self>;
}

supervision::supervised!(RetryHandler);

impl Handler<MailboxMessage<Exclude>> for RetryHandler {
    type Result = ResponseActFuture<Self, Result<ExclusionReply, Error>>;

    fn handle(&mut self, message: MailboxMessage<Exclude>, ctx: &mut Self::Context) -> Self::Result {
        let (Exclude { fence, token, rows, refused }, permit) = message.begin(ctx);
        let ExclusionDecisions { exclusions, fallback, steps } = self.decide(&rows, refused);
        let (outbox, metrics, bus) = (Arc::clone(&self.outbox), Arc::clone(&self.metrics), self.bus.clone());
        let exclude = async move {
            let _permit = permit;
            let excluded: Vec<RowId> = exclusions.iter().map(|exclusion| exclusion.row).collect();
            if exclusions.is_empty() {
                count(&metrics, &steps);
                return Ok(ExclusionReply::Done { counter: fence.counter, token, excluded, fallback });
            }
            match outbox.exclude(&fence, token, &exclusions).await {
                Ok(ExclusionOutcome::Done { token, .. }) => {
                    count(&metrics, &steps);
                    report(&exclusions, &rows, &bus);
                    Ok(ExclusionReply::Done { counter: token, token, excluded, fallback })
                }
                Ok(ExclusionOutcome::Stale) => Ok(ExclusionReply::Stale),
                Err(error) => {
                    if error.outcome_unknown() {
                        report_unknown(&exclusions, &rows);
                    }
                    Err(error)
                }
            }
        };
        Box::pin(exclude.into_actor(self))
    }
}

/// Logs each failed event: parked as an error, because an operator must act, retried as a warning. Parked ones are on the live stream too.
fn report(exclusions: &[Exclusion], rows: &[ClaimedRow], bus: &SupervisionBus) {
    for (exclusion, row) in with_rows(exclusions, rows) {
        match exclusion.disposition {
            Disposition::Retry(delay) => log_retry(exclusion, row, delay),
            Disposition::ParkKey | Disposition::ParkRow => ParkedRow::from_exclusion(exclusion, row).report(bus),
        }
    }
}

/// Logs the events that the store may have parked: their rows leave the batch then, and no later statement of the relay names them. The others are
/// due again, and their next failure is logged.
fn report_unknown(exclusions: &[Exclusion], rows: &[ClaimedRow]) {
    for (exclusion, row) in with_rows(exclusions, rows) {
        match exclusion.disposition {
            Disposition::Retry(_) => {}
            Disposition::ParkKey | Disposition::ParkRow => ParkedRow::from_exclusion(exclusion, row).report_unknown(),
        }
    }
}

fn with_rows<'a>(
    exclusions: &'a [Exclusion],
    rows: &'a [ClaimedRow],
) -> impl Iterator<Item = (&'a Exclusion, &'a ClaimedRow)> {
    let rows = by_id(rows);
    exclusions.iter().filter_map(move |exclusion| Some((exclusion, *rows.get(&exclusion.row)?)))
}

fn log_retry(exclusion: &Exclusion, row: &ClaimedRow, delay: Duration) {
    let (event_id, key, r#type, attempt) = (row.event_id, &row.key, &*row.event_type, row.attempt);
    let (order_id, request_id) = (order_of_event(r#type, key).map(display), row.request_id.as_deref());
    let (row, error, failure_type) = (exclusion.row, exclusion.reason.as_str(), exclusion.failure_type);
    tracing::warn!(
        event = "event_failed", %event_id, order_id, request_id, %key, r#type, row, attempt,
        failure_type = failure_type.as_str(), error,
        delay_ms = delay.as_millis() as u64,
        "event {event_id} of key {key} could not be published in attempt {attempt} and is tried again: {error}"
    );
}
