//! A topic with too few replicas in sync, and what metadata shows of it.
use std::sync::atomic::Ordering;

use super::Proxy;

impl Proxy {
    /// Whether no client receives metadata: its connection is cut instead.
    pub fn lose_metadata(&self, loses_metadata: bool) {
        self.state.loses_metadata.store(loses_metadata, Ordering::SeqCst);
    }

    /// The topic, of one partition, whose records are refused because it has too few replicas in sync.
    pub fn refuse_records_of(&self, topic: Option<&str>) {
        *self.state.under_replicated_topic.lock() = topic.map(str::to_owned);
        self.state.hides_in_sync_replicas.store(topic.is_some(), Ordering::SeqCst);
    }

    /// Metadata shows the topic's replicas in sync again. Its records are still refused.
    pub fn show_in_sync_replicas(&self) {
        self.state.hides_in_sync_replicas.store(false, Ordering::SeqCst);
    }

    /// As [`Self::refuse_records_of`]; the broker also cannot complete a transaction to which the topic belongs.
    pub fn lose_replicas_of(&self, topic: Option<&str>) {
        self.refuse_records_of(topic);
        self.state.accepts_no_markers.store(topic.is_some(), Ordering::SeqCst);
        self.state.blocked_transactional_ids.lock().clear();
    }

    /// How many transactional ids the broker cannot initialise, because it cannot end their last transaction.
    pub fn blocked_transactional_ids(&self) -> usize {
        self.state.blocked_transactional_ids.lock().len()
    }

    /// How often records of the under-replicated topic were refused.
    pub fn refusals(&self) -> u64 {
        self.state.refusals.load(Ordering::SeqCst)
    }
}
