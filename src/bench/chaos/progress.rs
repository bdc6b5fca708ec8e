//! The results of the clients and writers of a run: finished orders, committed events, and events that were rolled back.
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Type of every event that a client or a writer publishes.
pub(super) const EVENT_TYPE: &str = "CustomerMoved";
/// Keys that all clients and writers share, so that they wait for each other's transactions. They are in the order in which `publish_all` locks
/// them: transactions that keep to it do not deadlock.
pub(super) const EVENT_KEYS: [&str; 8] =
    ["customer 1", "customer 2", "customer 3", "customer 4", "customer 5", "k", "Ärger/ä", "東京"];

/// A committed event of another service, as recorded by its client or writer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WrittenEvent {
    pub key: String,
    pub writer: String,
    /// Ascends with the events of a writer.
    pub number: u64,
}

/// The results of all clients and writers.
pub(super) struct Progress {
    /// Orders that reached their last state.
    pub finished: BTreeSet<String>,
    /// Events that were committed, by their ids: over HTTP, and from SQL.
    pub http: BTreeMap<String, WrittenEvent>,
    pub sql: BTreeMap<String, WrittenEvent>,
    /// Ids of events of transactions and savepoints that were rolled back.
    pub rolled_back: BTreeSet<String>,
    /// Longest time in which no client received a successful response.
    pub longest_outage: Duration,
    last_success: Instant,
}

impl Default for Progress {
    fn default() -> Self {
        Self {
            finished: BTreeSet::new(),
            http: BTreeMap::new(),
            sql: BTreeMap::new(),
            rolled_back: BTreeSet::new(),
            longest_outage: Duration::ZERO,
            last_success: Instant::now(),
        }
    }
}

impl Progress {
    pub(super) fn record_success(&mut self) {
        self.longest_outage = self.longest_outage.max(self.last_success.elapsed());
        self.last_success = Instant::now();
    }
}
