//! SimulatedKafka: brokers and transaction coordinator. Transactional ids with epochs; one open transaction for each; a decision comes before
//! its markers, which reach each log at a time of their own.
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kit::murmur2::topic_partition;
use parking_lot::Mutex;
use ports::Error;
use ports::broker::{Position, Record};
use ports::outbox::RowId;
use ports::partitions::{PartitionNo, Token};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::cluster::flaw::Flaw;
use crate::cluster::kafka::groups::coordinator::Coordinator;
use crate::cluster::kafka::log::{BrokerTransaction, Content, LogId, Logs, TransactionIndex, TransactionStatus};
use crate::cluster::kafka::refusals::Refusals;
use crate::cluster::network::Network;
use crate::support::record_faults::header;

/// Partitions of each event topic.
pub const TOPIC_PARTITIONS: u32 = 3;
/// Partitions of the watermark topic: fewer than transactional ids, so that some share one.
const WATERMARK_PARTITIONS: u32 = 2;
/// The coordinator aborts a transaction that is open for longer.
const TRANSACTION_TIMEOUT: Duration = Duration::from_secs(6);

/// The cluster. Clones share it.
#[derive(Clone)]
pub struct SimulatedKafka(Arc<Shared>);

struct Shared {
    network: Network,
    flaw: Option<Flaw>,
    refusals: Refusals,
    coordinator: Coordinator,
    state: Mutex<ClusterState>,
    /// Records were appended or transactions decided.
    changed: Notify,
}

#[derive(Default)]
struct ClusterState {
    logs: Logs,
    producers: BTreeMap<Arc<str>, ProducerState>,
    /// The events of committed transactions, and when the first of each was committed.
    committed: BTreeMap<String, Instant>,
}

/// A transactional id at the coordinator.
#[derive(Default)]
struct ProducerState {
    epoch: u32,
    /// The last transaction, and the number that the client gave it.
    last: Option<(u64, TransactionIndex)>,
}

/// A client's claim to act as a producer, and its number for the transaction.
#[derive(Clone, Debug)]
pub struct ProducerIdentity {
    pub transactional_id: Arc<str>,
    pub epoch: u32,
    pub transaction: u64,
}

/// The records and the watermark of one batch.
#[derive(Clone, Debug)]
pub struct BatchRecords {
    pub partition: PartitionNo,
    pub token: Token,
    pub records: Vec<(RowId, Record)>,
}

/// Result of writing records.
pub enum ProduceResult {
    /// The records are in their logs, undecided. The positions of each batch.
    Written(Vec<Vec<(RowId, Position)>>),
    /// The markers of the producer's last transaction are still being written.
    NotReady(Instant),
    /// No record of any batch was written because these rows were refused. Batches are named by their index.
    Refused(Vec<(usize, RowId, Error)>),
    /// A newer producer has this transactional id, or the transaction has ended.
    Fenced,
}

/// Result of ending a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndResult {
    /// The coordinator has decided as requested, now or before.
    Decided,
    /// A newer producer has this transactional id, or the transaction was decided otherwise.
    Fenced,
}

impl SimulatedKafka {
    /// A cluster without topics and producers.
    pub fn new(network: Network, flaw: Option<Flaw>, refusals: Refusals) -> Self {
        let coordinator = Coordinator::new(flaw, network.trace().clone());
        let (state, changed) = (Mutex::default(), Notify::new());
        Self(Arc::new(Shared { network, flaw, refusals, coordinator, state, changed }))
    }

    /// The coordinator of the consumer groups.
    pub fn coordinator(&self) -> &Coordinator {
        &self.0.coordinator
    }

    /// The flaw of the simulated servers.
    pub fn flaw(&self) -> Option<Flaw> {
        self.0.flaw
    }

    /// The partition of the watermark topic that belongs to a transactional id.
    pub fn watermark_partition(transactional_id: &str) -> u32 {
        topic_partition(transactional_id.as_bytes(), WATERMARK_PARTITIONS)
    }

    /// Fences a transactional id. Returns the epoch below which every producer is fenced.
    pub fn fence_producer(&self, transactional_id: &Arc<str>) -> u32 {
        if self.0.flaw != Some(Flaw::FenceWithoutEffect) {
            return self.init_producer(transactional_id);
        }
        self.0.state.lock().producers.get(transactional_id).map_or(0, |producer| producer.epoch)
    }

    /// Raises the epoch of a transactional id and aborts its open transaction: no earlier producer can write or commit any more.
    pub fn init_producer(&self, transactional_id: &Arc<str>) -> u32 {
        let mut state = self.state_now();
        let producer = state.producers.entry(Arc::clone(transactional_id)).or_default();
        producer.epoch += 1;
        // The numbers of the new producer's transactions begin with 1.
        let last = producer.last.as_mut().map(|(number, transaction)| {
            *number = 0;
            *transaction
        });
        let epoch = producer.epoch;
        if let Some(transaction) = last {
            self.decide(&mut state, transaction, TransactionStatus::Aborted);
        }
        epoch
    }

    /// Writes records under a transaction, which begins with its first request.
    pub fn produce(&self, producer: &ProducerIdentity, batches: &[BatchRecords]) -> ProduceResult {
        let refused = self.refused(batches);
        if !refused.is_empty() {
            return ProduceResult::Refused(refused);
        }
        let mut state = self.state_now();
        let transaction = match self.transaction_of(&mut state, producer) {
            Ok(transaction) => transaction,
            Err(result) => return result,
        };
        let watermarks = LogId::Watermarks(Self::watermark_partition(&producer.transactional_id));
        let mut positions = Vec::with_capacity(batches.len());
        for batch in batches {
            let mut written = Vec::with_capacity(batch.records.len());
            for (row, record) in &batch.records {
                let (topic, partition) =
                    (Arc::clone(&record.topic), topic_partition(record.key.as_bytes(), TOPIC_PARTITIONS));
                let log = LogId::Topic(Arc::clone(&topic), partition);
                let offset = state.logs.append(log, Content::Event(record.clone()), transaction);
                written.push((*row, Position { topic, partition, offset }));
            }
            positions.push(written);
            if self.0.flaw != Some(Flaw::WatermarkNotWritten) {
                state.logs.append(watermarks.clone(), Content::Watermark(batch.partition, batch.token), transaction);
            }
        }
        ProduceResult::Written(positions)
    }

    fn refused(&self, batches: &[BatchRecords]) -> Vec<(usize, RowId, Error)> {
        let records = batches.iter().enumerate().flat_map(|(at, batch)| batch.records.iter().map(move |one| (at, one)));
        records.filter_map(|(at, (row, record))| Some((at, *row, self.0.refusals.error_for(record)?))).collect()
    }

    /// The open transaction of this producer, begun if its number is new.
    fn transaction_of(
        &self,
        state: &mut ClusterState,
        identity: &ProducerIdentity,
    ) -> Result<TransactionIndex, ProduceResult> {
        let now = Instant::now();
        let Some(producer) = state.producers.get_mut(&identity.transactional_id) else {
            return Err(ProduceResult::Fenced);
        };
        if producer.epoch != identity.epoch {
            return Err(ProduceResult::Fenced);
        }
        match producer.last {
            Some((number, last)) if number == identity.transaction => {
                let is_open = state.logs.transactions[last].status == TransactionStatus::Open;
                if is_open { Ok(last) } else { Err(ProduceResult::Fenced) }
            }
            Some((number, last)) => match state.logs.transactions[last].completed_at() {
                Some(completed) if number < identity.transaction && completed <= now => {
                    Ok(begin(producer, &mut state.logs, identity.transaction, now))
                }
                Some(completed) if number < identity.transaction => Err(ProduceResult::NotReady(completed)),
                Some(_) | None => Err(ProduceResult::Fenced),
            },
            None => Ok(begin(producer, &mut state.logs, identity.transaction, now)),
        }
    }

    /// Commits or aborts a transaction.
    pub fn end_transaction(&self, identity: &ProducerIdentity, status: TransactionStatus) -> EndResult {
        let mut state = self.state_now();
        let ClusterState { producers, logs, .. } = &mut *state;
        let Some(producer) = producers.get_mut(&identity.transactional_id) else { return EndResult::Fenced };
        if producer.epoch != identity.epoch {
            return EndResult::Fenced;
        }
        let transaction = match producer.last {
            Some((number, transaction)) if number == identity.transaction => transaction,
            // None of its records has arrived; records that arrive later find an aborted transaction.
            last if status == TransactionStatus::Aborted
                && last.is_none_or(|(last, _)| last < identity.transaction) =>
            {
                begin(producer, logs, identity.transaction, Instant::now())
            }
            _ => return EndResult::Fenced,
        };
        self.decide(&mut state, transaction, status)
    }

    /// Decides an open transaction. Its markers follow, most of them within milliseconds.
    fn decide(&self, state: &mut ClusterState, at: TransactionIndex, status: TransactionStatus) -> EndResult {
        let now = Instant::now();
        let transaction = &mut state.logs.transactions[at];
        if transaction.status != TransactionStatus::Open {
            return if transaction.status == status { EndResult::Decided } else { EndResult::Fenced };
        }
        transaction.status = status;
        let is_late = self.0.network.random_bool(0.1);
        for marker in transaction.markers.values_mut() {
            let delay =
                if is_late { self.0.network.random_millis(10, 1_500) } else { self.0.network.random_millis(0, 4) };
            *marker = Some(now + delay);
        }
        if status == TransactionStatus::Committed {
            let events = state.logs.events_of(at);
            for event in events {
                state.committed.entry(event).or_insert(now);
            }
        }
        self.0.changed.notify_waiters();
        EndResult::Decided
    }

    /// The state, after the coordinator has aborted the transactions that were open for too long.
    fn state_now(&self) -> parking_lot::MutexGuard<'_, ClusterState> {
        let mut state = self.0.state.lock();
        let now = Instant::now();
        let is_overdue = |transaction: &BrokerTransaction| {
            transaction.status == TransactionStatus::Open && transaction.started_at + TRANSACTION_TIMEOUT <= now
        };
        let overdue: Vec<TransactionIndex> =
            (0..).zip(&state.logs.transactions).filter(|(_, one)| is_overdue(one)).map(|(at, _)| at).collect();
        for transaction in overdue {
            self.decide(&mut state, transaction, TransactionStatus::Aborted);
            let mut producers = state.producers.values_mut();
            if let Some(producer) = producers.find(|one| one.last.is_some_and(|(_, last)| last == transaction)) {
                producer.epoch += 1;
            }
        }
        state
    }

    /// Reads the logs as they are now.
    pub(super) fn with_logs<T>(&self, read: impl FnOnce(&Logs, Instant) -> T) -> T {
        let state = self.state_now();
        read(&state.logs, Instant::now())
    }

    /// The notification of the next change of the logs.
    pub(super) fn changed(&self) -> &Notify {
        &self.0.changed
    }

    /// The highest visible token of a partition. An error while a transaction of the awaited watermark partition is undecided.
    pub fn watermark(&self, partition: PartitionNo, awaited: Option<u32>) -> Result<Option<Token>, ()> {
        let awaited = awaited.filter(|_| self.0.flaw != Some(Flaw::WatermarkReadTooEarly)).map(LogId::Watermarks);
        let (state, now) = (self.state_now(), Instant::now());
        if awaited.is_some_and(|log| !state.logs.is_decided(&log, now)) {
            return Err(());
        }
        Ok(state.logs.watermarks(now).remove(&partition))
    }

    /// The highest token of every partition, once no transaction is undecided.
    pub fn all_watermarks(&self) -> Result<BTreeMap<PartitionNo, Token>, ()> {
        let (state, now) = (self.state_now(), Instant::now());
        if !state.logs.watermark_logs().all(|log| state.logs.is_decided(log, now)) {
            return Err(());
        }
        Ok(state.logs.watermarks(now))
    }

    /// Every transactional id that was ever initialised.
    pub fn transactional_ids(&self) -> BTreeSet<Arc<str>> {
        self.0.state.lock().producers.keys().cloned().collect()
    }

    /// Appends a record by itself.
    pub fn append(&self, record: Record) -> Position {
        let mut state = self.state_now();
        let (topic, partition) = (Arc::clone(&record.topic), topic_partition(record.key.as_bytes(), TOPIC_PARTITIONS));
        state.logs.transactions.push(BrokerTransaction::begin(Instant::now()));
        let transaction = state.logs.transactions.len() - 1;
        let offset =
            state.logs.append(LogId::Topic(Arc::clone(&topic), partition), Content::Event(record), transaction);
        self.decide(&mut state, transaction, TransactionStatus::Committed);
        Position { topic, partition, offset }
    }

    /// Appends a record by itself, unless the brokers refuse it.
    pub fn append_or_refuse(&self, record: &Record) -> Result<Position, Error> {
        self.0.refusals.error_for(record).map_or_else(|| Ok(self.append(record.clone())), Err)
    }

    /// Whether every transaction is decided, with all its markers.
    pub fn is_decided(&self) -> bool {
        let (state, now) = (self.state_now(), Instant::now());
        state.logs.transactions.iter().all(|transaction| transaction.completed_at().is_some_and(|at| at <= now))
    }

    /// Whether a transaction with this event was committed.
    pub fn has_committed(&self, event: &str) -> bool {
        self.0.state.lock().committed.contains_key(event)
    }

    /// When an event was first committed.
    pub fn committed_at(&self, event: &str) -> Option<Instant> {
        self.0.state.lock().committed.get(event).copied()
    }
}

/// Begins a transaction of this producer.
fn begin(producer: &mut ProducerState, logs: &mut Logs, number: u64, now: Instant) -> TransactionIndex {
    logs.transactions.push(BrokerTransaction::begin(now));
    let transaction = logs.transactions.len() - 1;
    producer.last = Some((number, transaction));
    transaction
}

impl Logs {
    /// The highest visible token of each partition.
    fn watermarks(&self, now: Instant) -> BTreeMap<PartitionNo, Token> {
        let mut highest = BTreeMap::new();
        for log in self.watermark_logs() {
            for (_, content, status) in self.stable(log, now) {
                if let (Content::Watermark(partition, token), TransactionStatus::Committed) = (content, status) {
                    let known: &mut Token = highest.entry(*partition).or_default();
                    *known = (*known).max(*token);
                }
            }
        }
        highest
    }

    fn events_of(&self, transaction: TransactionIndex) -> Vec<String> {
        let logs = self.transactions[transaction].markers.keys();
        logs.flat_map(|log| self.written_by(log, transaction)).map(|record| header(record, "ce_id")).collect()
    }
}
