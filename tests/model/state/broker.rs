//! The broker: transactions by transactional id, the records of each key in offset order, and the watermark of each id.
use crate::configuration::{Configuration, INSTANCES, KEYS_MAX, PARTITIONS_MAX, PRODUCERS_MAX};
use crate::invariants::BrokenRule;
use crate::state::event_set::EventSet;

/// Transactional ids of all instances.
pub const IDS: usize = INSTANCES * PRODUCERS_MAX;
/// Most records of a key, duplicates included.
pub const RECORDS_MAX: usize = 8;

/// State of a transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TransactionStatus {
    /// The id has no transaction.
    #[default]
    Absent,
    /// Records are appended; it can still be aborted.
    Open,
    /// Its commit is decided; the markers are not written yet, so the last stable offset is below its records.
    Prepared,
}

/// The coordinator's entry of a transactional id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Transaction {
    /// Raised by each fence: requests with a smaller one are refused.
    pub epoch: u8,
    pub status: TransactionStatus,
    /// Watermark records of the transaction, by outbox partition; zero where it has none.
    pub tokens: [u8; PARTITIONS_MAX],
    /// Producer epoch of a commit request that has not arrived; zero if there is none.
    pub commit_request: u8,
}

/// A record of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    pub event: u8,
    /// The transaction whose markers are not written yet.
    pub transactional_id: Option<u8>,
}

/// Records of one key in offset order; aborted ones are removed.
pub type Log = [Option<Record>; RECORDS_MAX];

/// Coordinator, watermark topic and event topics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Broker {
    pub transactions: [Transaction; IDS],
    /// The last committed watermark below the last stable offset, by transactional id and outbox partition.
    pub watermarks: [[u8; PARTITIONS_MAX]; IDS],
    pub logs: [Log; KEYS_MAX],
}

impl Broker {
    /// Initialises the id: raises its epoch and aborts its open transaction. A prepared transaction stays committed.
    pub fn fence(&mut self, id: usize) -> u8 {
        self.abort(id);
        self.transactions[id].epoch += 1;
        self.transactions[id].epoch
    }

    /// Appends one record of an event, inside a transaction or committed at once.
    ///
    /// # Panics
    /// When the key's log is full: the configuration needs a larger [`RECORDS_MAX`].
    pub fn append(&mut self, key: usize, event: usize, transactional_id: Option<u8>) {
        let end = self.logs[key].iter_mut().find(|record| record.is_none());
        *end.expect("the log of a key has room") = Some(Record { event: event as u8, transactional_id });
    }

    /// Aborts an open transaction: none of its records and watermarks becomes visible.
    pub fn abort(&mut self, id: usize) {
        if self.transactions[id].status != TransactionStatus::Open {
            return;
        }
        for log in &mut self.logs {
            let kept = log.iter().flatten().filter(|record| record.transactional_id != Some(id as u8));
            let mut rest: Log = [None; RECORDS_MAX];
            for (slot, record) in rest.iter_mut().zip(kept) {
                *slot = Some(*record);
            }
            *log = rest;
        }
        self.clear(id);
    }

    /// Writes the markers of a prepared transaction: its records and watermarks become visible to `read_committed`.
    pub fn write_markers(&mut self, id: usize) {
        for record in self.logs.iter_mut().flatten().flatten() {
            if record.transactional_id == Some(id as u8) {
                record.transactional_id = None;
            }
        }
        for (partition, token) in self.transactions[id].tokens.into_iter().enumerate().filter(|(_, token)| *token != 0)
        {
            self.watermarks[id][partition] = token;
        }
        self.clear(id);
    }

    fn clear(&mut self, id: usize) {
        let transaction = &mut self.transactions[id];
        (transaction.status, transaction.tokens) = (TransactionStatus::Absent, [0; PARTITIONS_MAX]);
    }

    /// Whether the last stable offset of the id's watermark partition has reached its end.
    pub fn is_decided(&self, id: usize) -> bool {
        self.transactions[id].status == TransactionStatus::Absent
    }

    /// The largest watermark of the partition over all transactional ids.
    pub fn highest_watermark(&self, partition: usize) -> u8 {
        self.watermarks.iter().map(|watermarks| watermarks[partition]).max().unwrap_or(0)
    }

    /// Whether the event's record is committed, markers written or not.
    pub fn is_committed(&self, config: &Configuration, event: usize) -> bool {
        let log = &self.logs[config.events[event].key];
        log.iter().flatten().any(|record| record.event as usize == event && self.is_record_committed(record))
    }

    /// Events of the transaction that is open under this id.
    pub fn events_of(&self, id: usize) -> EventSet {
        let mut events = EventSet::default();
        for record in self.logs.iter().flatten().flatten() {
            if record.transactional_id == Some(id as u8) {
                events.insert(record.event as usize);
            }
        }
        events
    }

    /// Whether a consumer with `read_committed` sees the record now or later.
    pub fn is_record_committed(&self, record: &Record) -> bool {
        record.transactional_id.is_none_or(|id| self.transactions[id as usize].status == TransactionStatus::Prepared)
    }

    /// The watermark that a resolution uses for this former id, or none while the read must wait for the last stable offset.
    pub fn watermark_of(&self, config: &Configuration, id: usize, partition: usize) -> Option<u8> {
        let waits = !config.breaks(BrokenRule::WatermarkBeforeLastStableOffset);
        (self.is_decided(id) || !waits).then_some(self.watermarks[id][partition])
    }
}
