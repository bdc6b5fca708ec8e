//! BatchSender: sends a claimed batch to the broker. Excludes rows that cannot be sent and publishes the others; or returns the batch to the
//! store as not sent.
mod publish_spans;

use std::sync::Arc;
use std::time::Duration;

use app::relay::RefusedRow;
use ports::broker::{Batch, BrokerFailure, Position, PublishOutcome, Record};
use ports::outbox::{BatchOutcome, ClaimKind, ClaimedBatch, FencedOutcome, RowId, Settlement};
use ports::partitions::{PartitionNo, Token};
use ports::{Error, FaultClass};
use tokio::time::Instant;

use super::batch_request::{ClaimMode, SendPermit};
use super::context::RelayContext;
use super::held_partition::{AcknowledgedBatch, HeldPartition};
use super::in_flight_batch::InFlightBatch;
use super::producer_sessions::ProducerClaim;
use super::published_log;
use super::report::{BatchReport, BrokerSignal};
use super::run_result::RunResult;
use super::settlement;
use crate::retry_handler::{Exclude, ExclusionReply};
use publish_spans::PublishSpans;

/// Longest wait for the RetryHandler; past it the outcome is unknown and the batch is resolved.
const EXCLUDE_DEADLINE: Duration = Duration::from_secs(10);
/// How often rows of one batch may be refused before the rest is returned to the store: a lease is too short for a broker that refuses one row at
/// a time.
const REFUSALS_MAX: u32 = 16;

/// Sends the batches of all partitions.
pub struct BatchSender(Arc<RelayContext>);

impl BatchSender {
    /// A sender that uses these ports.
    pub fn new(context: Arc<RelayContext>) -> Self {
        Self(context)
    }

    /// Sends a claimed batch under the producer session that its claim names. Cancel-safe for the rows: the partition's next acquisition
    /// resolves a batch that stays open.
    pub async fn send(
        &self,
        mut held: HeldPartition,
        mut producer: ProducerClaim,
        batch: ClaimedBatch,
        mode: ClaimMode,
    ) -> RunResult {
        let RelayContext { broker, local_leases, envelope, options, metrics, .. } = &*self.0;
        let (mut batch, refused) = InFlightBatch::new(batch, envelope, broker.record_bytes_max(), mode);
        let _in_progress = batch.in_progress(held.fence.partition);
        let contract_violations = refused.iter().filter(|refused| refused.contract_violation).count();
        metrics.kafka_schema_validation_errors.inc_by(contract_violations as u64);
        if !refused.is_empty()
            && let Err(end) = self.exclude(&mut held, &mut batch, refused).await
        {
            return end;
        }
        for _ in 0..REFUSALS_MAX {
            let fence = &held.fence;
            let time_left = local_leases.time_left(fence.partition, fence.epoch).saturating_sub(options.margin);
            if time_left.is_zero() {
                // Too late for the unsent rows: the resolution returns their attempt. With at-least-once delivery, the sent ones follow again.
                return RunResult::unknown(BatchReport { more: true, ..BatchReport::default() });
            }
            let refused = match self.publish_unsent(fence.partition, &mut batch, &mut producer, time_left).await {
                PublishOutcome::Committed(positions) => {
                    // The producer session takes the next claims while this batch waits for its settlement.
                    drop(producer);
                    return self.acknowledge(held, batch, positions).await;
                }
                PublishOutcome::Aborted { cause, reached } => {
                    // A batch that never reached the broker, and a probe, get their attempt back.
                    let costs_no_attempt = !reached || batch.mode.permit == SendPermit::Probe;
                    if costs_no_attempt && batch.sent.is_empty() {
                        return self.return_unsent(held, batch, cause).await;
                    }
                    return self.retry_heads(held, batch, cause).await;
                }
                PublishOutcome::RowsRefused(refused) => refused,
                PublishOutcome::Partial { sent, refused } => {
                    batch.record_sent(sent);
                    refused
                }
                PublishOutcome::Unknown(failure) => {
                    let broker = BrokerSignal::Failed(failure.id);
                    return self.end_producer(held, batch, &producer, failure, broker).await;
                }
                // The producer session was fenced or ended, often because of another batch: this says nothing about the broker.
                PublishOutcome::SessionLost(failure) => {
                    return self.end_producer(held, batch, &producer, failure, BrokerSignal::None).await;
                }
            };
            let refused = refused.iter().map(|(row, error)| batch.refusal(*row, error)).collect();
            if let Err(end) = self.exclude(&mut held, &mut batch, refused).await {
                return end;
            }
        }
        let cause = Error::Overloaded("the broker kept refusing rows of one batch".into()).into();
        if batch.sent.is_empty() {
            return self.return_unsent(held, batch, cause).await;
        }
        self.retry_heads(held, batch, cause).await
    }

    /// Ends the producer session after an unknown outcome; the partition's next acquisition resolves the batch. A resolution would resend every row.
    /// Therefore, if an earlier at-least-once call published some rows, this function fences the producer, settles those rows and schedules the
    /// others for retry. The fence comes first, because the session may still be sending.
    async fn end_producer(
        &self,
        held: HeldPartition,
        batch: InFlightBatch,
        producer: &ProducerClaim,
        failure: BrokerFailure,
        broker: BrokerSignal,
    ) -> RunResult {
        self.0.producers.end(producer.session()).await;
        if !batch.sent.is_empty() && self.0.broker.fence(producer.session()).await.is_ok() {
            return self.retry_heads(held, batch, failure).await;
        }
        RunResult::unknown(BatchReport { more: true, error: Some(failure.error), broker, ..BatchReport::default() })
    }

    /// Publishes the batch's unsent records; records the latency and ends the spans. Unless all are committed, rebuilds the unsent records.
    async fn publish_unsent(
        &self,
        partition: PartitionNo,
        batch: &mut InFlightBatch,
        producer: &mut ProducerClaim,
        time_left: Duration,
    ) -> PublishOutcome {
        let spans = PublishSpans::begin(&self.0, batch, partition);
        let records = std::mem::take(&mut batch.unsent);
        let (sent_at, count) = (Instant::now(), records.len());
        let published = self.publish(partition, producer, batch.token, records, time_left).await;
        self.record_latency(&published, count, sent_at.elapsed());
        spans.end(&published);
        if !matches!(published, PublishOutcome::Committed(_)) {
            batch.rebuild_unsent(&self.0.envelope);
        }
        published
    }

    async fn publish(
        &self,
        partition: PartitionNo,
        producer: &mut ProducerClaim,
        token: Token,
        records: Vec<(RowId, Record)>,
        time_left: Duration,
    ) -> PublishOutcome {
        if records.is_empty() {
            return PublishOutcome::Committed(Vec::new());
        }
        let expected_batches = producer.begin_publish();
        let batch = Batch { partition, token, records, time_left, expected_batches };
        // Nothing of the batch may commit after the lease's end, so a later reply carries no information.
        let deadline = time_left + self.0.options.margin;
        let reply = tokio::time::timeout(deadline, self.0.broker.publish(producer.session(), batch)).await;
        reply.unwrap_or_else(|_| {
            PublishOutcome::Unknown(BrokerFailure::unknown(format!(
                "the broker did not reply within {} s",
                deadline.as_secs()
            )))
        })
    }

    /// Excludes rows from the batch. The caller continues with the batch, under its new token, only after the store has confirmed the exclusion.
    async fn exclude(
        &self,
        held: &mut HeldPartition,
        batch: &mut InFlightBatch,
        refused: Vec<RefusedRow>,
    ) -> Result<(), RunResult> {
        let (fence, token, rows) = (held.fence.clone(), batch.token, Arc::clone(&batch.rows));
        let reply = self.0.retry_handler.ask(Exclude { fence, token, rows, refused }, EXCLUDE_DEADLINE).await;
        match reply {
            Ok(Ok(ExclusionReply::Done { counter, token, excluded, fallback })) => {
                held.fence.counter = counter;
                batch.token = token;
                batch.remove_excluded(&excluded);
                batch.send_to_fallback(fallback, &self.0.envelope);
                Ok(())
            }
            Ok(Ok(ExclusionReply::Stale)) => {
                self.0.metrics.outbox_stale_settlement_total.inc();
                Err(RunResult::unknown(BatchReport { more: true, ..BatchReport::default() }))
            }
            Ok(Err(error)) => Err(RunResult::failed(None, error)),
            Err(error) => {
                Err(RunResult::failed(None, Error::Unknown(format!("the retry handler did not reply: {error}"))))
            }
        }
    }

    /// The broker has acknowledged the batch: it waits for the next run, which settles it. Settles at once where a batch that is open after a
    /// crash would be published again, and after a trial: nothing else runs until it is settled.
    async fn acknowledge(
        &self,
        mut held: HeldPartition,
        mut batch: InFlightBatch,
        mut positions: Vec<(RowId, Position)>,
    ) -> RunResult {
        positions.append(&mut batch.sent);
        let sent = positions.len();
        published_log::write(&batch.rows, &positions);
        self.record_age(&batch, sent);
        let settlement = Settlement {
            fence: held.fence.clone(),
            token: batch.token,
            positions: positions.into(),
            by_fallback: batch.fallback.iter().map(|refused| refused.row).collect(),
        };
        // A batch without any row left to send says nothing about the broker; as the breaker's probe it must not close the breaker.
        let broker = if sent > 0 { BrokerSignal::Acknowledged } else { BrokerSignal::None };
        let report = BatchReport { sent, more: batch.more, broker, ..BatchReport::default() };
        held.unsettled = Some(AcknowledgedBatch { settlement, sent });
        if batch.mode.kind == ClaimKind::Ordinary && self.0.options.defers_settlement {
            return RunResult::known(held, report);
        }
        let settled = settlement::settle(&self.0, &mut held).await;
        RunResult::settled(held, settled, report)
    }

    /// Records the time of each acknowledged row since the handover of its records to the broker.
    fn record_latency(&self, published: &PublishOutcome, sent_count: usize, latency: Duration) {
        let acknowledged = match published {
            PublishOutcome::Committed(_) => sent_count,
            PublishOutcome::Partial { sent, .. } => sent.len(),
            PublishOutcome::RowsRefused(_)
            | PublishOutcome::Aborted { .. }
            | PublishOutcome::Unknown(_)
            | PublishOutcome::SessionLost(_) => 0,
        };
        (0..acknowledged).for_each(|_| self.0.metrics.outbox_publish_latency.record(latency));
    }

    /// Records the age of the batch's rows at their acknowledgement.
    fn record_age(&self, batch: &InFlightBatch, sent: usize) {
        if sent == 0 {
            return;
        }
        let ages = || batch.rows.iter().map(|row| batch.age(row));
        for age in ages() {
            self.0.metrics.outbox_commit_to_ack_seconds.record(age);
        }
        if tracing::enabled!(tracing::Level::DEBUG) {
            let ages_ms: Vec<String> = ages().map(|age| format!("{:.1}", age.as_secs_f64() * 1_000.0)).collect();
            let ages_ms = ages_ms.join(",");
            let (token, rows) = (batch.token, sent);
            tracing::debug!(event = "batch_acknowledged", token, rows, ages_ms, "the broker acknowledged a batch");
        }
    }

    /// The broker failed and no row caused it, but rows may have reached it: the first unsent row of each key waits for its retry, and the later
    /// ones wait behind it. Rows that an earlier call published are acknowledged.
    async fn retry_heads(&self, mut held: HeldPartition, mut batch: InFlightBatch, cause: BrokerFailure) -> RunResult {
        let of_row = cause_of_a_row(&cause.error);
        // A transient failure here names no row: the broker did not answer, so it has rejected none of them.
        let is_outage = of_row.fault() == FaultClass::Transient;
        let refusal = |row| RefusedRow { is_outage, ..batch.refusal(row, &of_row) };
        let refused = batch.unsent_heads().into_iter().map(refusal).collect();
        batch.remove_unsent_fallback();
        if let Err(end) = self.exclude(&mut held, &mut batch, refused).await {
            return end;
        }
        if !batch.sent.is_empty() && batch.unsent.is_empty() {
            return self.acknowledge(held, batch, Vec::new()).await;
        }
        self.return_unsent(held, batch, cause).await
    }

    /// Returns the batch to the store as not sent: its rows get their attempt back.
    async fn return_unsent(
        &self,
        mut held: HeldPartition,
        batch: InFlightBatch,
        BrokerFailure { id, error }: BrokerFailure,
    ) -> RunResult {
        let report = BatchReport { broker: BrokerSignal::Failed(id), error: Some(error), ..BatchReport::default() };
        let RelayContext { outbox, poison, .. } = &*self.0;
        let returned = outbox.resolve(&held.fence, batch.token, BatchOutcome::NotSent, poison).await;
        match returned.map(|returned| returned.closed) {
            Ok(FencedOutcome::Done { counter, .. }) => {
                held.fence.counter = counter;
                RunResult::known(held, report)
            }
            Ok(FencedOutcome::Stale) | Err(_) => RunResult::unknown(report),
        }
    }
}

/// The cause to record for each row when the failure of the batch names no row: none is known to be invalid, so all are tried again.
fn cause_of_a_row(cause: &Error) -> Error {
    match cause {
        Error::Rejected(reason) => Error::Broken(reason.clone()),
        cause => cause.clone(),
    }
}
