//! A claimed batch's way out: exclude what cannot go, publish the rest, settle; or hand it back with a reason.
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use app::relay::{BatchPlan, RecordEnvelope, RefusedRow, fallback_record, plan};
use ports::Error;
use ports::broker::{Batch, Position, Published, Record};
use ports::outbox::{BatchOutcome, ClaimedBatch, ClaimedRow, FencedOutcome, RowId, Settlement};
use ports::partitions::Token;

use super::cycle::{End, Relay};
use super::session::Session;
use super::{Broker, Report};
use crate::retry_handler::{Exclude, Excluded};

/// Longest the RetryHandler may take; past it the outcome is unknown and the batch is resolved.
const EXCLUDE_DEADLINE: Duration = Duration::from_secs(10);
/// How often one batch may lose rows to refusals before the rest is handed back: a broker that refuses one row a round is not worked
/// through within one lease.
const REFUSALS_MAX: u32 = 16;
/// How often a settlement is repeated while the lease lasts; repeating is harmless, and a batch that stays open is resolved.
const SETTLE_TRIES: u32 = 5;

/// A batch in hand.
struct Cargo {
    token: Token,
    rows: Arc<[ClaimedRow]>,
    send: Vec<(RowId, Record)>,
    /// What a first call put through, at least once, before the rest goes again.
    gone: Vec<(RowId, Position)>,
    fallback: Vec<RefusedRow>,
    more: bool,
    probe: bool,
}

impl Relay {
    pub(super) async fn send(&self, mut session: Session, batch: ClaimedBatch, probe: bool) -> End {
        let BatchPlan { send, refused } = plan(&batch.rows, &self.envelope, self.broker.record_bytes_max());
        let ClaimedBatch { token, rows, more } = batch;
        let mut cargo = Cargo { token, rows: rows.into(), send, gone: Vec::new(), fallback: Vec::new(), more, probe };
        if !refused.is_empty()
            && let Err(end) = self.exclude(&mut session, &mut cargo, refused).await
        {
            return end;
        }
        for _ in 0..REFUSALS_MAX {
            let fence = &session.fence;
            let time_left = self.book.time_left(fence.partition, fence.epoch).saturating_sub(self.options.margin);
            if time_left.is_zero() {
                // Nothing of it was handed over: whoever resolves it returns the attempt.
                return End::unsure(Report { more: true, ..Report::default() });
            }
            let records = std::mem::take(&mut cargo.send);
            let published = self.publish(&session, cargo.token, records, time_left).await;
            if !matches!(published, Published::Committed(_)) {
                cargo.load(&self.envelope, self.broker.record_bytes_max());
            }
            let refused = match published {
                Published::Committed(positions) => return self.settle(session, cargo, positions).await,
                Published::Aborted { refused, cause, reached } if refused.is_empty() => {
                    let cause =
                        cause.unwrap_or_else(|| Error::Unreachable("the broker aborted and did not say why".into()));
                    return self.not_sent(session, cargo, cause, reached).await;
                }
                Published::Aborted { refused, .. } => refused,
                Published::Partial { sent, refused } => {
                    cargo.went(sent);
                    refused
                }
                Published::Unknown(detail) => return self.left_open(&session, detail, Broker::Failed).await,
                // A neighbour on the lane was fenced, and we with it: that says nothing about the broker.
                Published::SessionLost(detail) => return self.left_open(&session, detail, Broker::NotAsked).await,
            };
            let refused = refused.iter().map(|(row, error)| self.refusal(&cargo, *row, error)).collect();
            if let Err(end) = self.exclude(&mut session, &mut cargo, refused).await {
                return end;
            }
        }
        let cause = Error::Overloaded("the broker kept refusing rows of one batch".into());
        self.not_sent(session, cargo, cause, false).await
    }

    /// Nobody knows what became of the batch: the lane's session is over, and the next one begins by finding out.
    async fn left_open(&self, session: &Session, detail: String, broker: Broker) -> End {
        self.lanes.over(&session.lane).await;
        let error = Some(Error::Unknown(detail));
        End::unsure(Report { more: true, error, broker, ..Report::default() })
    }

    fn refusal(&self, cargo: &Cargo, row: RowId, error: &Error) -> RefusedRow {
        let in_fallback = cargo.fallback.iter().any(|refused| refused.row == row);
        RefusedRow { in_fallback, ..RefusedRow::from_error(row, error) }
    }

    async fn publish(
        &self,
        session: &Session,
        token: Token,
        records: Vec<(RowId, Record)>,
        time_left: Duration,
    ) -> Published {
        if records.is_empty() {
            return Published::Committed(Vec::new());
        }
        let batch = Batch { partition: session.fence.partition, token, records, time_left };
        // Past the lease's time nothing of the batch may commit, so an answer that is still out then says nothing any more.
        let overdue = time_left + self.options.margin;
        let answer = tokio::time::timeout(overdue, self.broker.publish(&session.lane, batch)).await;
        answer.unwrap_or_else(|_| Published::Unknown(format!("the broker gave no answer for {} s", overdue.as_secs())))
    }

    /// Awaited and confirmed before anything else happens to the batch: a message alone is no confirmation.
    async fn exclude(&self, session: &mut Session, cargo: &mut Cargo, refused: Vec<RefusedRow>) -> Result<(), End> {
        let (fence, token, rows) = (session.fence.clone(), cargo.token, Arc::clone(&cargo.rows));
        let answer = self.retry.ask(Exclude { fence, token, rows, refused }, EXCLUDE_DEADLINE).await;
        match answer {
            Ok(Ok(Excluded::Done { counter, out, fallback })) => {
                session.fence.counter = counter;
                cargo.drop_rows(&out);
                cargo.send_to_fallback(fallback, &self.envelope);
                Ok(())
            }
            Ok(Ok(Excluded::Stale)) => {
                self.metrics.outbox_stale_settlement_total.inc();
                Err(End::unsure(Report { more: true, ..Report::default() }))
            }
            Ok(Err(error)) => Err(End::failed(None, error)),
            Err(lost) => Err(End::failed(None, Error::Unknown(format!("the retry handler gave no answer: {lost}")))),
        }
    }

    async fn settle(&self, mut session: Session, mut cargo: Cargo, mut positions: Vec<(RowId, Position)>) -> End {
        positions.append(&mut cargo.gone);
        let sent = positions.len();
        self.measure(&cargo, sent);
        let settlement = Settlement {
            fence: session.fence.clone(),
            token: cargo.token,
            positions,
            by_fallback: cargo.fallback.iter().map(|refused| refused.row).collect(),
        };
        // A batch of which nothing was left to send says nothing about the broker, least of all as the breaker's probe.
        let broker = if sent > 0 { Broker::Works } else { Broker::NotAsked };
        let report = Report { sent, more: cargo.more, broker, ..Report::default() };
        let mut last = None;
        for _ in 0..SETTLE_TRIES {
            match self.outbox.settle(settlement.clone()).await {
                Ok(FencedOutcome::Done { counter, .. }) => {
                    session.fence.counter = counter;
                    self.metrics.outbox_entries_delivered.inc_by(sent as u64);
                    self.metrics.outbox_publish_rate.inc_by(sent as u64);
                    return End::sure(session, report);
                }
                Ok(FencedOutcome::Stale) => {
                    self.metrics.outbox_stale_settlement_total.inc();
                    return End::unsure(Report { more: true, ..report });
                }
                Err(error) => last = Some(error),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        End::unsure(Report { more: true, error: last, ..report })
    }

    fn measure(&self, cargo: &Cargo, sent: usize) {
        let now = self.clock.now();
        if sent == 0 {
            return;
        }
        for row in cargo.rows.iter() {
            let age = now.since(row.created_at);
            self.metrics.outbox_commit_to_ack_seconds.record(age);
            self.metrics.outbox_publish_latency.record(age);
        }
    }

    /// The broker, not a row, is to blame. A batch that never reached it, and a probe, get their attempt back; otherwise each key's
    /// first row waits for its retry and the later ones wait behind it.
    async fn not_sent(&self, mut session: Session, mut cargo: Cargo, cause: Error, reached: bool) -> End {
        let report = |error| Report { more: false, broker: Broker::Failed, error: Some(error), ..Report::default() };
        let partly = !cargo.gone.is_empty();
        if partly || (reached && !cargo.probe) {
            let refused = cargo.heads().into_iter().map(|row| self.refusal(&cargo, row, &cause)).collect();
            let gone: HashSet<RowId> = cargo.gone.iter().map(|(row, _)| *row).collect();
            cargo.fallback.retain(|refused| gone.contains(&refused.row));
            if let Err(end) = self.exclude(&mut session, &mut cargo, refused).await {
                return end;
            }
        }
        if partly && cargo.send.is_empty() {
            return self.settle(session, cargo, Vec::new()).await;
        }
        match self.outbox.resolve(&session.fence, cargo.token, BatchOutcome::NotSent).await {
            Ok(FencedOutcome::Done { counter, .. }) => {
                session.fence.counter = counter;
                End::sure(session, report(cause))
            }
            Ok(FencedOutcome::Stale) | Err(_) => End::unsure(report(cause)),
        }
    }
}

impl Cargo {
    /// Makes the records anew of what did not go. They are handed over and not copied: mostly all of them go.
    fn load(&mut self, envelope: &RecordEnvelope, record_bytes_max: usize) {
        let gone: HashSet<RowId> = self.gone.iter().map(|(row, _)| *row).collect();
        let BatchPlan { send, .. } = plan(&self.rows, envelope, record_bytes_max);
        self.send = send.into_iter().filter(|(row, _)| !gone.contains(row)).collect();
        let fallback: Vec<RefusedRow> = std::mem::take(&mut self.fallback);
        let (went, left) = fallback.into_iter().partition(|refused| gone.contains(&refused.row));
        self.fallback = went;
        self.send_to_fallback(left, envelope);
    }

    /// A part is durable: the rest goes on without it.
    fn went(&mut self, sent: Vec<(RowId, Position)>) {
        let rows: HashSet<RowId> = sent.iter().map(|(row, _)| *row).collect();
        self.send.retain(|(row, _)| !rows.contains(row));
        self.gone.extend(sent);
    }

    /// Rows that were excluded do not go, nor do the later rows of their keys: the store gave those back.
    fn drop_rows(&mut self, out: &[RowId]) {
        let mut waiting = HashSet::new();
        let mut gone = HashSet::new();
        for row in self.rows.iter() {
            if out.contains(&row.id) {
                waiting.insert(row.key);
                gone.insert(row.id);
            } else if waiting.contains(&row.key) {
                gone.insert(row.id);
            }
        }
        self.send.retain(|(row, _)| !gone.contains(row));
        self.rows = self.rows.iter().filter(|row| !gone.contains(&row.id)).cloned().collect();
    }

    /// A fallback goes through its lane with the rest of the batch, in its row's place.
    fn send_to_fallback(&mut self, refused: Vec<RefusedRow>, envelope: &RecordEnvelope) {
        for refused in refused {
            let Some(row) = self.rows.iter().find(|row| row.id == refused.row) else { continue };
            let Some(payload) = &row.payload else { continue };
            let record = fallback_record(row, payload, envelope, &refused);
            self.send.retain(|(id, _)| *id != row.id);
            let place = self.send.partition_point(|(id, _)| *id < row.id);
            self.send.insert(place, (row.id, record));
            self.fallback.push(refused);
        }
    }

    /// The first row of each key that was to be sent.
    fn heads(&self) -> Vec<RowId> {
        let mut seen = HashSet::new();
        let sent: HashSet<RowId> = self.send.iter().map(|(row, _)| *row).collect();
        self.rows.iter().filter(|row| sent.contains(&row.id) && seen.insert(row.key)).map(|row| row.id).collect()
    }
}
