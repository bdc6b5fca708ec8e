//! What the clients and writers of a run have achieved, and what they know of their events.
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Type of every event that a client or a writer publishes.
pub(super) const EVENT_TYPE: &str = "CustomerMoved";
/// Keys that all clients and writers share, so that they wait for each other's transactions. They are in the order in which `publish_all` locks
/// them: transactions that keep to it do not deadlock.
pub(super) const EVENT_KEYS: [&str; 8] =
    ["customer 1", "customer 2", "customer 3", "customer 4", "customer 5", "k", "Ärger/ä", "東京"];

/// A committed event of another service, as its client or writer knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WrittenEvent {
    pub key: String,
    pub writer: String,
    /// Ascends with the events of a writer.
    pub number: u64,
}

/// What all clients have achieved.
pub(super) struct Progress {
    /// Orders that reached their last state.
    pub finished: BTreeSet<String>,
    /// Events that were committed, by their ids: over HTTP, and from SQL.
    pub http: BTreeMap<String, WrittenEvent>,
    pub sql: BTreeMap<String, WrittenEvent>,
    /// Ids of events of transactions and savepoints that were rolled back.
    pub rolled_back: BTreeSet<String>,
    /// Longest time in which no client received an answer of success.
    pub longest_pause: Duration,
    last_answer: Instant,
}

impl Default for Progress {
    fn default() -> Self {
        Self {
            finished: BTreeSet::new(),
            http: BTreeMap::new(),
            sql: BTreeMap::new(),
            rolled_back: BTreeSet::new(),
            longest_pause: Duration::ZERO,
            last_answer: Instant::now(),
        }
    }
}

impl Progress {
    pub(super) fn answered(&mut self) {
        self.longest_pause = self.longest_pause.max(self.last_answer.elapsed());
        self.last_answer = Instant::now();
    }
}
