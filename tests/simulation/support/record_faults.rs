//! Faults of single records: a broker that refuses records, aborts batches or panics, and records every attempt to send.
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};

use async_trait::async_trait;
use parking_lot::Mutex;
use ports::Error;
use ports::broker::{Batch, Broker, BrokerFailure, Position, PublishOutcome, Record};
use ports::outbox::RowId;
use ports::partitions::{PartitionNo, ProducerSessionId, Token};
use tokio::time::Instant;

/// A fault of a single record at the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordFault {
    /// The broker refuses it with a transient error.
    RefuseTransient,
    /// The record's topic partition accepts no records for now.
    PartitionUnavailable,
    /// The broker refuses it with a permanent error.
    RefusePermanent,
    /// The broker aborts the whole batch after receiving it; no record is the cause.
    AbortBatch,
    /// At least once: no broker answers for it, so the session ends after the other records are stored.
    NoAnswer,
    /// The actor that sends it panics.
    PanicSender,
}

/// An attempt to send a record.
#[derive(Clone, Debug)]
pub struct SendAttempt {
    /// Virtual time of the attempt.
    pub at: Instant,
    /// Key of the record.
    pub key: String,
    /// Sequence number of the event within its key.
    pub sequence: u64,
}

/// No simulation has more partitions.
const PARTITIONS_MAX: u32 = 64;

type RecordPredicate = Box<dyn Fn(&Record) -> bool + Send>;

struct FaultRule {
    matches: RecordPredicate,
    fault: RecordFault,
    left: usize,
}

/// Controls a [`FaultyRecordBroker`]. Clones share their state.
#[derive(Clone, Default)]
pub struct RecordFaults(Arc<Shared>);

#[derive(Default)]
struct Shared {
    rules: Mutex<Vec<FaultRule>>,
    attempts: Mutex<Vec<SendAttempt>>,
    running: AtomicUsize,
    running_max: AtomicUsize,
    /// Lowest watermark that the broker reports of every partition.
    watermark_min: AtomicU64,
}

impl RecordFaults {
    /// The next `times` records for which `matches` returns true meet this fault.
    pub fn add(&self, times: usize, fault: RecordFault, matches: impl Fn(&Record) -> bool + Send + 'static) {
        self.0.rules.lock().push(FaultRule { matches: Box::new(matches), fault, left: times });
    }

    /// Removes the faults of all records.
    pub fn clear(&self) {
        self.0.rules.lock().clear();
    }

    /// From now on the broker reports watermarks of at least this token, as if the store had been rewound behind them.
    pub fn raise_watermarks(&self, to: Token) {
        self.0.watermark_min.store(to, SeqCst);
    }

    /// Every attempt so far, refused or not.
    pub fn attempts(&self) -> Vec<SendAttempt> {
        self.0.attempts.lock().clone()
    }

    /// Largest number of batches that were in flight at once.
    pub fn in_flight_max(&self) -> usize {
        self.0.running_max.load(SeqCst)
    }

    fn fault_of(&self, record: &Record) -> Option<RecordFault> {
        let mut rules = self.0.rules.lock();
        let rule = rules.iter_mut().find(|rule| rule.left > 0 && (rule.matches)(record))?;
        rule.left -= 1;
        Some(rule.fault)
    }

    fn record_attempts(&self, batch: &Batch) {
        let at = Instant::now();
        let attempts = batch.records.iter().map(|(_, record)| SendAttempt {
            at,
            key: record.key.to_string(),
            sequence: header(record, "x-sequence").parse().expect("a sequence is a number"),
        });
        self.0.attempts.lock().extend(attempts);
    }
}

/// A header's text; empty where it is missing.
pub fn header(record: &Record, name: &str) -> String {
    record.header(name).map(|value| String::from_utf8_lossy(value).into_owned()).unwrap_or_default()
}

/// The broker. Its producer slots start at `first_producer`, so that two services share one real broker but no producer.
pub struct FaultyRecordBroker {
    inner: Arc<dyn Broker>,
    record_faults: RecordFaults,
    first_producer: u32,
}

impl FaultyRecordBroker {
    /// Adds the faults to this broker.
    pub fn wrap(inner: Arc<dyn Broker>, record_faults: RecordFaults, first_producer: u32) -> Self {
        Self { inner, record_faults, first_producer }
    }
}

impl FaultyRecordBroker {
    /// Publishes in a task of its own, as on a real connection: a caller that gives up does not stop the batch.
    async fn forward(&self, session: &ProducerSessionId, batch: Batch) -> PublishOutcome {
        let (inner, session) = (Arc::clone(&self.inner), session.clone());
        let published = tokio::task::spawn_local(async move { inner.publish(&session, batch).await });
        match published.await {
            Ok(published) => published,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => PublishOutcome::Unknown(BrokerFailure::unknown("the broker's task was stopped")),
            },
        }
    }
}

impl FaultyRecordBroker {
    /// Stores the other records without a watermark, as at least once, and ends the session. A key stops at its unanswered record.
    async fn publish_except(
        &self,
        unanswered: &[(RowId, Arc<str>)],
        session: &ProducerSessionId,
        batch: Batch,
    ) -> PublishOutcome {
        let is_held_back =
            |(row, record): &(RowId, Record)| unanswered.iter().any(|(first, key)| *key == record.key && first <= row);
        let stored = batch.records.into_iter().filter(|record| !is_held_back(record));
        let (rows, records): (Vec<RowId>, Vec<Record>) = stored.unzip();
        let stored = match self.inner.fence(session).await {
            Ok(()) => self.inner.append(records).await,
            Err(error) => Err(error),
        };
        match stored {
            Ok(positions) if !rows.is_empty() => {
                PublishOutcome::Partial { sent: rows.into_iter().zip(positions).collect(), refused: Vec::new() }
            }
            Ok(_) | Err(_) => PublishOutcome::Unknown(BrokerFailure::unknown("fault: no broker answers in time")),
        }
    }
}

/// Counts a running batch; the drop ends it, however the call ends.
struct Running(RecordFaults);

impl Running {
    fn start(record_faults: &RecordFaults) -> Self {
        let now = record_faults.0.running.fetch_add(1, SeqCst) + 1;
        record_faults.0.running_max.fetch_max(now, SeqCst);
        Self(record_faults.clone())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.0.running.fetch_sub(1, SeqCst);
    }
}

#[async_trait]
impl Broker for FaultyRecordBroker {
    async fn open_session(&self, slot: u32) -> Result<ProducerSessionId, Error> {
        self.inner.open_session(self.first_producer + slot).await
    }

    async fn publish(&self, session: &ProducerSessionId, batch: Batch) -> PublishOutcome {
        let _running = Running::start(&self.record_faults);
        self.record_faults.record_attempts(&batch);
        let (mut refused, mut unanswered) = (Vec::new(), Vec::new());
        for (row, record) in &batch.records {
            match self.record_faults.fault_of(record) {
                None => {}
                Some(RecordFault::RefuseTransient) => {
                    refused.push((*row, Error::Unknown(format!("fault: not row {row} now"))))
                }
                Some(RecordFault::PartitionUnavailable) => {
                    refused.push((*row, Error::Unreachable(format!("fault: no partition for row {row}"))))
                }
                Some(RecordFault::RefusePermanent) => {
                    refused.push((*row, Error::Rejected(format!("fault: never row {row}"))))
                }
                Some(RecordFault::AbortBatch) => {
                    let cause = Error::Unreachable("fault: the batch was aborted".into()).into();
                    return PublishOutcome::Aborted { cause, reached: true };
                }
                Some(RecordFault::NoAnswer) => unanswered.push((*row, Arc::clone(&record.key))),
                Some(RecordFault::PanicSender) => panic!("fault: row {row} kills its sender"),
            }
        }
        if !unanswered.is_empty() {
            return self.publish_except(&unanswered, session, batch).await;
        }
        if refused.is_empty() {
            return self.forward(session, batch).await;
        }
        PublishOutcome::RowsRefused(refused)
    }

    async fn watermark(
        &self,
        partition: PartitionNo,
        fenced: Option<&ProducerSessionId>,
    ) -> Result<Option<Token>, Error> {
        let watermark = self.inner.watermark(partition, fenced).await?;
        let least = self.record_faults.0.watermark_min.load(SeqCst);
        Ok(watermark.max((least > 0).then_some(least)))
    }

    async fn fence(&self, session: &ProducerSessionId) -> Result<(), Error> {
        self.inner.fence(session).await
    }

    async fn fence_all(&self) -> Result<BTreeMap<PartitionNo, Token>, Error> {
        let mut watermarks = self.inner.fence_all().await?;
        let least = self.record_faults.0.watermark_min.load(SeqCst);
        for partition in (0..PARTITIONS_MAX).map(PartitionNo).filter(|_| least > 0) {
            let watermark = watermarks.entry(partition).or_default();
            *watermark = least.max(*watermark);
        }
        Ok(watermarks)
    }

    async fn append(&self, records: Vec<Record>) -> Result<Vec<Position>, Error> {
        let faults: Vec<_> = records.iter().map(|record| self.record_faults.fault_of(record)).collect();
        if faults.contains(&Some(RecordFault::RefusePermanent)) {
            return Err(Error::Rejected("fault: never this record".into()));
        }
        self.inner.append(records).await
    }

    async fn recovered(&self) {
        self.inner.recovered().await;
    }

    async fn sweep(&self, limit: u32) -> Result<u64, Error> {
        self.inner.sweep(limit).await
    }

    fn record_bytes_max(&self) -> usize {
        self.inner.record_bytes_max()
    }
}
