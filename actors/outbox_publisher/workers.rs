//! Workers: the partition workers of this instance. Their inboxes survive restarts, so this table does, too; no fact lives only here.
use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use ports::partitions::PartitionNo;
use supervision::{Bus, ChildError, ChildSpec, Inbox};

use crate::partition_worker::PartitionWorker;

/// Specifies the worker of a partition; the tree defines it.
pub type WorkerSpec = Arc<dyn Fn(PartitionNo) -> (Inbox<PartitionWorker>, ChildSpec) + Send + Sync>;

/// Starts, finds and removes the workers below one supervisor.
#[derive(Clone)]
pub struct Workers {
    bus: Bus,
    supervisor: &'static str,
    spec: WorkerSpec,
    inboxes: Arc<Mutex<BTreeMap<PartitionNo, Inbox<PartitionWorker>>>>,
}

impl Workers {
    /// No worker yet. New ones start below `supervisor`.
    pub fn new(bus: Bus, supervisor: &'static str, spec: WorkerSpec) -> Self {
        Self { bus, supervisor, spec, inboxes: Arc::default() }
    }

    /// The inbox of a partition's worker.
    pub fn find(&self, partition: PartitionNo) -> Option<Inbox<PartitionWorker>> {
        self.inboxes.lock().get(&partition).cloned()
    }

    /// All partitions that have a worker.
    pub fn partitions(&self) -> Vec<PartitionNo> {
        self.inboxes.lock().keys().copied().collect()
    }

    /// All workers with their partitions.
    pub fn all(&self) -> Vec<(PartitionNo, Inbox<PartitionWorker>)> {
        self.inboxes.lock().iter().map(|(partition, worker)| (*partition, worker.clone())).collect()
    }

    /// Starts the worker of a partition, if there is none.
    ///
    /// # Errors
    /// The workers' supervisor does not run: it restarts, or the tree stops.
    pub fn start(&self, partition: PartitionNo) -> Result<(), ChildError> {
        if self.inboxes.lock().contains_key(&partition) {
            return Ok(());
        }
        let (inbox, spec) = (self.spec)(partition);
        self.bus.start_child(self.supervisor, spec)?;
        self.inboxes.lock().insert(partition, inbox);
        Ok(())
    }

    /// Removes the worker of a partition that was handed over.
    pub async fn remove(&self, partition: PartitionNo) {
        self.inboxes.lock().remove(&partition);
        if let Err(error) = self.bus.remove_child(self.supervisor, &worker_id(partition)).await {
            tracing::warn!(event = "worker_not_removed", partition = partition.0, error = %error, "a worker could not be removed");
        }
    }
}

/// A worker's name below its supervisor.
pub fn worker_id(partition: PartitionNo) -> String {
    format!("partition-worker-{partition}")
}
