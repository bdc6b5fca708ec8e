//! A producer session: one producer on one thread. Each transaction takes the batches that were queued during the last one. A session that
//! cannot continue finishes all its batches and ends; no other session ever sends them.
pub(crate) mod dead_sessions;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use ports::Error;
use ports::broker::{BrokerFailure, PublishOutcome, Record};
use ports::outbox::RowId;
use ports::partitions::{PartitionNo, ProducerSessionId, Token};
use rdkafka::producer::Producer;

use crate::connection::broker_contact::BrokerContact;
use crate::options::Options;
use crate::producer::abort_report::AbortReport;
use crate::producer::delivery_reports::DeliveryOutcome;
use crate::producer::refused_sizes::RefusedSizes;
use crate::producer::sender::RecordSender;
use crate::producer::session_batch::SessionBatch;
use crate::producer::transaction::{TransactionContext, TransactionEnd};
use crate::producer::transactional_producer::TransactionalProducer;
use crate::producer::{at_least_once, transaction};
use dead_sessions::DeadSessions;

/// How often an idle session serves its client's callbacks.
const IDLE_POLL_INTERVAL: Duration = Duration::from_millis(200);
/// How long one such poll takes.
const IDLE_POLL_TIME: Duration = Duration::from_millis(1);

/// Longest wait for the batches that the first one of a transaction announces: a transaction costs several times as much.
const LINGER: Duration = Duration::from_millis(1);
/// A transaction that fails within this time met a broker in transition (a new topic, a leader that moved), not an outage.
const QUICK_FAILURE: Duration = Duration::from_millis(500);
/// Pause before the transaction is repeated.
const QUICK_FAILURE_PAUSE: Duration = Duration::from_millis(100);
/// How often it is repeated before the relay receives the failure: for one second, within which a new topic gets its leaders.
const QUICK_FAILURES_MAX: u32 = 10;

/// The producer of a session, by its delivery guarantee.
pub(crate) enum SessionProducer {
    /// In transactions, with all watermarks in this partition of the watermark topic.
    Transactional(Box<TransactionalProducer>, u32),
    /// Without transactions and watermarks.
    AtLeastOnce(RecordSender),
}

impl SessionProducer {
    /// The partition of the watermark topic with the session's watermarks, if it writes any.
    pub(crate) fn watermark_partition(&self) -> Option<u32> {
        match self {
            SessionProducer::Transactional(_, partition) => Some(*partition),
            SessionProducer::AtLeastOnce(_) => None,
        }
    }
}

/// The state of a session's thread.
pub(crate) struct SessionThread {
    producer: SessionProducer,
    contact: Arc<BrokerContact>,
    options: Arc<Options>,
    watermark_topic: Arc<str>,
    /// Set when the session ends, by this thread or another.
    is_ended: Arc<AtomicBool>,
    /// The last token committed for each partition. A batch whose token is not above it was published before.
    committed: HashMap<PartitionNo, Token>,
    /// How many transactions in a row the broker refused at once.
    quick_failures: u32,
    /// Shared by all sessions of the process: with two in turn, one must not refuse what the other has just found to be accepted.
    refused_sizes: Arc<Mutex<RefusedSizes>>,
    /// A batch that exceeded the current transaction's limits; it begins the next one.
    held_back: Option<SessionBatch>,
    id: ProducerSessionId,
    /// The dead sessions of this process. The thread adds its own id when its producer can commit nothing more.
    dead_sessions: DeadSessions,
}

/// Why a session ended.
struct SessionEnded(String);

impl SessionThread {
    pub(crate) fn new(
        producer: SessionProducer,
        contact: Arc<BrokerContact>,
        options: Arc<Options>,
        is_ended: Arc<AtomicBool>,
        refused_sizes: Arc<Mutex<RefusedSizes>>,
        (id, dead_sessions): (ProducerSessionId, DeadSessions),
    ) -> Self {
        Self {
            producer,
            contact,
            watermark_topic: options.watermark_topic().into(),
            is_ended,
            committed: HashMap::new(),
            quick_failures: 0,
            refused_sizes,
            held_back: None,
            id,
            dead_sessions,
            options,
        }
    }

    /// Publishes batches until the session ends or its queue is closed.
    pub(crate) fn run(mut self, queue: &Receiver<SessionBatch>) {
        let reason = loop {
            let first = match self.held_back.take() {
                Some(batch) => Ok(batch),
                None => queue.recv_timeout(IDLE_POLL_INTERVAL),
            };
            match first {
                Ok(first) if self.is_ended.load(Ordering::Relaxed) => {
                    self.held_back = Some(first);
                    break "the session was ended".into();
                }
                Ok(first) => {
                    let group = self.collect_group(first, queue);
                    if let Err(SessionEnded(reason)) = self.publish(group) {
                        break reason;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break "the session was ended".into(),
            }
            if let SessionProducer::AtLeastOnce(sender) = &self.producer {
                sender.producer.poll(IDLE_POLL_TIME);
                if let Some((code, reason)) = sender.producer.client().fatal_error() {
                    break format!("{code:?}: {reason}");
                }
            }
        };
        self.is_ended.store(true, Ordering::Relaxed);
        let lost = PublishOutcome::SessionLost(BrokerFailure::unknown(reason));
        finish_all(self.held_back.take().into_iter().chain(queue.try_iter()), &lost);
    }

    /// Group commit: takes the batches queued during the last transaction, within the limits of one transaction. Waits a moment for those
    /// that are announced and not queued yet.
    fn collect_group(&mut self, first: SessionBatch, queue: &Receiver<SessionBatch>) -> Vec<SessionBatch> {
        let linger_until = Instant::now() + LINGER;
        let (mut records, mut bytes, mut expected_batches) = (first.records.len(), first.bytes, first.expected_batches);
        let mut group = vec![first];
        while let Some(next) = next_queued(queue, expected_batches, linger_until) {
            expected_batches = next.expected_batches;
            records += next.records.len();
            bytes += next.bytes;
            if records > self.options.transaction_records_max || bytes > self.options.transaction_bytes_max {
                self.held_back = Some(next);
                break;
            }
            group.push(next);
        }
        group
    }

    /// Publishes a group and finishes each of its batches. Batches that did not cause an abort are sent again under their own tokens.
    fn publish(&mut self, group: Vec<SessionBatch>) -> Result<(), SessionEnded> {
        let mut remaining = group;
        loop {
            remaining = self.admit(remaining);
            // A batch that is sent one by one gets a transaction of its own, so that no other batch waits for its result.
            let alone =
                remaining.iter().position(|batch| batch.sends_one_by_one).map(|index| remaining.swap_remove(index));
            let (current, waiting) = match alone {
                Some(alone) => (vec![alone], remaining),
                None => (remaining, Vec::new()),
            };
            if current.is_empty() {
                return Ok(());
            }
            remaining = match self.publish_once(current) {
                Ok(again) => waiting.into_iter().chain(again).collect(),
                Err(SessionEnded(reason)) => {
                    finish_all(waiting, &PublishOutcome::SessionLost(BrokerFailure::unknown(&reason)));
                    return Err(SessionEnded(reason));
                }
            };
        }
    }

    /// Runs one transaction, or in at-least-once mode one round; returns the batches to send again.
    fn publish_once(&mut self, batches: Vec<SessionBatch>) -> Result<Vec<SessionBatch>, SessionEnded> {
        let (producer, watermark_partition) = match &mut self.producer {
            SessionProducer::Transactional(producer, watermark_partition) => (producer, *watermark_partition),
            SessionProducer::AtLeastOnce(sender) => {
                return at_least_once::publish(sender, batches, self.options.delivery_timeout, &self.is_ended)
                    .map(|()| Vec::new())
                    .map_err(SessionEnded);
            }
        };
        let context = TransactionContext {
            options: &self.options,
            watermark_topic: &self.watermark_topic,
            watermark_partition,
            is_ended: &self.is_ended,
        };
        let started = Instant::now();
        match transaction::publish(producer, &batches, &context) {
            TransactionEnd::Committed(outcomes) => {
                self.quick_failures = 0;
                self.finish_committed(batches, &outcomes);
                Ok(Vec::new())
            }
            TransactionEnd::Aborted(report) => Ok(self.handle_abort(batches, report, started)),
            TransactionEnd::AbortPending(report, reason) => {
                self.record_refused_sizes(&batches, &report);
                // Before any batch is finished: a batch that was waiting is resolved at once.
                self.dead_sessions.insert_fenced(self.id.clone());
                self.is_ended.store(true, Ordering::Relaxed);
                let remaining = finish_aborted(batches, report);
                finish_all(remaining, &PublishOutcome::SessionLost(BrokerFailure::unknown(&reason)));
                Err(SessionEnded(reason))
            }
            TransactionEnd::Unknown(reason) => {
                finish_all(batches, &PublishOutcome::Unknown(BrokerFailure::unknown(&reason)));
                Err(SessionEnded(reason))
            }
            TransactionEnd::SessionLost(reason) => {
                finish_all(batches, &PublishOutcome::SessionLost(BrokerFailure::unknown(&reason)));
                Err(SessionEnded(reason))
            }
        }
    }

    /// Repeats the batches after a failure that is temporary; otherwise finishes those that the abort concerns.
    fn handle_abort(&mut self, batches: Vec<SessionBatch>, report: AbortReport, started: Instant) -> Vec<SessionBatch> {
        let is_quick =
            report.is_broker_fault() && started.elapsed() < QUICK_FAILURE && self.quick_failures < QUICK_FAILURES_MAX;
        self.record_refused_sizes(&batches, &report);
        if is_quick {
            self.quick_failures += 1;
            std::thread::sleep(QUICK_FAILURE_PAUSE);
            return batches;
        }
        self.quick_failures = 0;
        finish_aborted(batches, report)
    }

    fn finish_committed(&mut self, batches: Vec<SessionBatch>, outcomes: &[Option<DeliveryOutcome>]) {
        self.contact.record_response();
        let mut first = 0;
        for batch in batches {
            let positions = batch.positions(outcomes, first);
            first += batch.record_count();
            self.committed.extend(batch.watermark);
            batch.finish(PublishOutcome::Committed(positions));
        }
    }
}

impl SessionThread {
    /// Finishes the batches that need no transaction, and returns the others.
    fn admit(&self, batches: Vec<SessionBatch>) -> Vec<SessionBatch> {
        let (now, wall) = (Instant::now(), self.options.clock.wall());
        let (mut admitted, overdue) = (Vec::with_capacity(batches.len()), lease_expired(false));
        for mut batch in batches {
            batch.limit_timestamps(wall);
            let stale = batch.watermark.and_then(|(partition, token)| {
                self.committed.get(&partition).filter(|last| **last >= token).map(|last| (token, *last))
            });
            let mut refused = oversized(&batch, self.options.record_bytes_max);
            if refused.is_empty() {
                refused = self.known_oversized(&batch, now);
            }
            if batch.is_overdue(now) {
                batch.finish(overdue.clone());
            } else if let Some((token, last)) = stale {
                // The batch was published before, or a later one overtook it: only the watermark decides which.
                batch.finish(PublishOutcome::Unknown(BrokerFailure::unknown(format!(
                    "token {token} is not above the watermark {last}"
                ))));
            } else if !refused.is_empty() {
                batch.finish(PublishOutcome::RowsRefused(refused));
            } else {
                admitted.push(batch);
            }
        }
        admitted
    }

    fn record_refused_sizes(&mut self, batches: &[SessionBatch], report: &AbortReport) {
        let now = Instant::now();
        let record = |(index, row): &(usize, RowId)| batches[*index].records.iter().find(|(id, _)| id == row);
        for (_, record) in report.too_large.iter().filter_map(record) {
            self.refused_sizes.lock().insert(record, now);
        }
    }

    fn known_oversized(&self, batch: &SessionBatch, now: Instant) -> Vec<(RowId, Error)> {
        let refused_sizes = self.refused_sizes.lock();
        let refusal = |(row, record): &(RowId, Record)| {
            let refused = refused_sizes.refused_size(record, now)?;
            let message = format!(
                "key {}: the broker has just refused a record of {refused} bytes, and this one is not smaller",
                record.key
            );
            Some((*row, Error::Rejected(message)))
        };
        batch.records.iter().filter_map(refusal).collect()
    }
}

/// The next queued batch. Where further batches are expected, it may still arrive until `linger_until`.
fn next_queued<T>(queue: &Receiver<T>, expected_batches: u32, linger_until: Instant) -> Option<T> {
    match queue.try_recv() {
        Err(TryRecvError::Empty) if expected_batches > 0 => {
            queue.recv_timeout(linger_until.saturating_duration_since(Instant::now())).ok()
        }
        next => next.ok(),
    }
}

/// Records whose value exceeds the configured limit.
fn oversized(batch: &SessionBatch, bytes_max: usize) -> Vec<(RowId, Error)> {
    let large = batch.records.iter().filter(|(_, record)| record.value.len() > bytes_max);
    let message =
        |record: &Record| format!("key {}: {} bytes; a record may have {bytes_max}", record.key, record.value.len());
    large.map(|(row, record)| (*row, Error::Rejected(message(record)))).collect()
}

/// The result of batches whose lease expired at the same time.
fn lease_expired(reached: bool) -> PublishOutcome {
    let cause = Error::Unreachable("the lease expired before the batch could be committed".into());
    PublishOutcome::Aborted { cause: cause.into(), reached }
}

/// Finishes batches with one result: a failure keeps its id.
fn finish_all(batches: impl IntoIterator<Item = SessionBatch>, result: &PublishOutcome) {
    batches.into_iter().for_each(|batch| batch.finish(result.clone()));
}

/// Finishes the batches that an abort concerns; returns the others, which are sent again.
fn finish_aborted(batches: Vec<SessionBatch>, report: AbortReport) -> Vec<SessionBatch> {
    let AbortReport { mut refused, unidentified_refusals, overdue: expired_batches, cause, reached, .. } = report;
    let (cause, overdue) = (cause.map(BrokerFailure::from), lease_expired(reached));
    let mut again = Vec::new();
    for (index, mut batch) in batches.into_iter().enumerate() {
        let own: Vec<(RowId, Error)> = refused
            .extract_if(.., |(batch_index, _, _)| *batch_index == index)
            .map(|(_, row, error)| (row, error))
            .collect();
        if !own.is_empty() {
            batch.finish(PublishOutcome::RowsRefused(own));
        } else if expired_batches.contains(&index) {
            batch.finish(overdue.clone());
        } else if let Some(cause) = &cause {
            batch.finish(PublishOutcome::Aborted { cause: cause.clone(), reached });
        } else {
            batch.sends_one_by_one |= unidentified_refusals.contains(&index);
            again.push(batch);
        }
    }
    again
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;

    #[test]
    fn session_waits_only_for_announced_batches_and_only_until_the_deadline() {
        let (batches, queue) = sync_channel(1);
        let late = Instant::now() + Duration::from_secs(30);
        assert_eq!(next_queued(&queue, 0, late), None, "none is announced");
        assert_eq!(next_queued(&queue, 1, Instant::now()), None, "it is too late");

        let sender = std::thread::spawn(move || batches.send(7));
        assert_eq!(next_queued(&queue, 1, late), Some(7));
        sender.join().expect("no panic").expect("sent");
        assert_eq!(next_queued(&queue, 1, late), None, "the queue is closed");
    }
}
