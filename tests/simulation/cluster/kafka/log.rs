//! The logs of the simulated brokers. A record of a transaction is visible once the transaction is committed, its marker is in the log, and no
//! earlier record of the log is undecided.
use std::collections::BTreeMap;
use std::sync::Arc;

use ports::broker::Record;
use ports::partitions::{PartitionNo, Token};
use tokio::time::Instant;

/// Index of a transaction in the order of their beginnings.
pub type TransactionIndex = usize;

/// A log: a partition of a topic, or of the watermark topic.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogId {
    Topic(Arc<str>, u32),
    Watermarks(u32),
}

/// An entry of a log.
#[derive(Clone, Debug)]
pub enum Content {
    Event(Record),
    Watermark(PartitionNo, Token),
}

/// Whether a transaction is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionStatus {
    Open,
    Committed,
    Aborted,
}

/// A transaction, and when its markers reach its logs.
pub struct BrokerTransaction {
    pub status: TransactionStatus,
    pub started_at: Instant,
    /// The logs that it wrote to; the time is that of the marker, once it is decided.
    pub markers: BTreeMap<LogId, Option<Instant>>,
}

impl BrokerTransaction {
    /// A transaction without records.
    pub fn begin(now: Instant) -> Self {
        Self { status: TransactionStatus::Open, started_at: now, markers: BTreeMap::new() }
    }

    /// Whether its marker is in this log.
    pub fn is_decided_in(&self, log: &LogId, now: Instant) -> bool {
        self.status != TransactionStatus::Open && self.markers.get(log).copied().flatten().is_none_or(|at| at <= now)
    }

    /// When the last marker is written; `None` while it is open.
    pub fn completed_at(&self) -> Option<Instant> {
        let markers = self.markers.values().map(|marker| marker.unwrap_or(self.started_at));
        (self.status != TransactionStatus::Open).then(|| markers.max().unwrap_or(self.started_at))
    }
}

/// All logs, and the transactions that wrote to them.
#[derive(Default)]
pub struct Logs {
    logs: BTreeMap<LogId, Vec<(Content, TransactionIndex)>>,
    pub transactions: Vec<BrokerTransaction>,
}

impl Logs {
    /// Appends to a log under an open transaction. Returns the offset.
    pub fn append(&mut self, log: LogId, content: Content, transaction: TransactionIndex) -> u64 {
        self.transactions[transaction].markers.entry(log.clone()).or_default();
        let entries = self.logs.entry(log).or_default();
        entries.push((content, transaction));
        entries.len() as u64 - 1
    }

    /// Whether every transaction that wrote to this log is decided in it: its last stable offset equals its end.
    pub fn is_decided(&self, log: &LogId, now: Instant) -> bool {
        self.entries(log).all(|(_, transaction)| self.transactions[*transaction].is_decided_in(log, now))
    }

    /// The records of a log up to its last stable offset, with the status of their transactions.
    pub fn stable<'a>(
        &'a self,
        log: &'a LogId,
        now: Instant,
    ) -> impl Iterator<Item = (u64, &'a Content, TransactionStatus)> {
        let status = |transaction: &TransactionIndex| self.transactions[*transaction].status;
        (0..)
            .zip(self.entries(log))
            .take_while(move |(_, (_, transaction))| self.transactions[*transaction].is_decided_in(log, now))
            .map(move |(offset, (content, transaction))| (offset, content, status(transaction)))
    }

    /// Every record of a log, committed or not.
    pub fn written<'a>(&'a self, log: &'a LogId) -> impl Iterator<Item = (u64, &'a Content)> {
        (0..).zip(self.entries(log)).map(|(offset, (content, _))| (offset, content))
    }

    /// When the next marker is written, if a decided transaction still lacks one.
    pub fn next_marker(&self, now: Instant) -> Option<Instant> {
        let markers = self.transactions.iter().flat_map(|transaction| transaction.markers.values());
        markers.filter_map(|marker| *marker).filter(|at| *at > now).min()
    }

    fn entries(&self, log: &LogId) -> impl Iterator<Item = &(Content, TransactionIndex)> {
        self.logs.get(log).into_iter().flatten()
    }

    /// The events that a transaction wrote to a log.
    pub fn written_by(&self, log: &LogId, transaction: TransactionIndex) -> impl Iterator<Item = &Record> {
        self.entries(log).filter(move |(_, by)| *by == transaction).filter_map(|(content, _)| match content {
            Content::Event(record) => Some(record),
            Content::Watermark(..) => None,
        })
    }

    /// The watermark logs that exist.
    pub fn watermark_logs(&self) -> impl Iterator<Item = &LogId> {
        self.logs.keys().filter(|log| matches!(log, LogId::Watermarks(_)))
    }
}
