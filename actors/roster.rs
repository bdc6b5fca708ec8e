//! The workers of this instance, by partition: their inboxes survive restarts, so this list does too. No fact lives only here.
use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use ports::partitions::PartitionNo;
use supervision::{ChildError, Mailbox, SupervisionBus};

use crate::partition_worker::{PartitionWorker, Relay};
use crate::tree;

/// Starts, finds and removes workers.
#[derive(Clone)]
pub struct Roster {
    bus: SupervisionBus,
    relay: Arc<Relay>,
    arbiter: Option<actix_rt::ArbiterHandle>,
    workers: Arc<Mutex<BTreeMap<PartitionNo, Mailbox<PartitionWorker>>>>,
}

impl Roster {
    /// An empty roster.
    pub fn new(bus: SupervisionBus, relay: Arc<Relay>, arbiter: Option<actix_rt::ArbiterHandle>) -> Self {
        Self { bus, relay, arbiter, workers: Arc::default() }
    }

    /// The worker of a partition.
    pub fn find(&self, partition: PartitionNo) -> Option<Mailbox<PartitionWorker>> {
        self.workers.lock().get(&partition).cloned()
    }

    /// Partitions that have a worker.
    pub fn partitions(&self) -> Vec<PartitionNo> {
        self.workers.lock().keys().copied().collect()
    }

    /// Gives a partition its worker.
    ///
    /// # Errors
    /// The supervisor of the workers is not there (it is restarting, or the tree is stopping).
    pub fn hire(&self, partition: PartitionNo) -> Result<(), ChildError> {
        if self.workers.lock().contains_key(&partition) {
            return Ok(());
        }
        let (inbox, spec) = tree::partition_worker(&self.bus, &self.relay, partition, self.arbiter.clone());
        self.bus.start_child(tree::PARTITIONS, spec)?;
        self.workers.lock().insert(partition, inbox);
        Ok(())
    }

    /// Takes a partition's worker away, after it has handed its partition over.
    pub async fn dismiss(&self, partition: PartitionNo) {
        self.workers.lock().remove(&partition);
        let id = tree::worker_id(partition);
        if let Err(error) = self.bus.remove_child(tree::PARTITIONS, &id).await {
            tracing::warn!(event = "worker_not_removed", partition = partition.0, error = %error, "a worker could not be removed");
        }
    }
}
