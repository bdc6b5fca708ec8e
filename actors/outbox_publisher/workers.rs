//! Workers: the partition workers of this instance. Their mailboxes survive restarts, and so does this table; it contains nothing that
//! exists only here.
use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use ports::partitions::PartitionNo;
use supervision::{ChildSpec, Mailbox, SupervisionBus};

use crate::partition_worker::PartitionWorker;

/// Specifies the worker of a partition; the tree defines it.
pub type WorkerSpec = Arc<dyn Fn(PartitionNo) -> (Mailbox<PartitionWorker>, ChildSpec) + Send + Sync>;

/// The mailbox of a partition's worker.
#[derive(Clone)]
pub struct WorkerHandle {
    /// The partition of the worker.
    pub partition: PartitionNo,
    /// Survives restarts of the worker.
    pub mailbox: Mailbox<PartitionWorker>,
}

/// Starts, finds and removes the workers below one supervisor.
#[derive(Clone)]
pub struct Workers {
    bus: SupervisionBus,
    supervisor: &'static str,
    spec: WorkerSpec,
    mailboxes: Arc<Mutex<BTreeMap<PartitionNo, Mailbox<PartitionWorker>>>>,
}

impl Workers {
    /// No worker yet. New ones start below `supervisor`.
    pub fn new(bus: SupervisionBus, supervisor: &'static str, spec: WorkerSpec) -> Self {
        Self { bus, supervisor, spec, mailboxes: Arc::default() }
    }

    /// The worker of a partition.
    pub fn find(&self, partition: PartitionNo) -> Option<WorkerHandle> {
        self.mailboxes.lock().get(&partition).cloned().map(|mailbox| WorkerHandle { partition, mailbox })
    }

    /// All partitions that have a worker.
    pub fn partitions(&self) -> Vec<PartitionNo> {
        self.mailboxes.lock().keys().copied().collect()
    }

    /// Handles of the workers of all partitions that have one.
    pub fn all(&self) -> Vec<WorkerHandle> {
        let handle = |(partition, mailbox): (&PartitionNo, &Mailbox<_>)| WorkerHandle {
            partition: *partition,
            mailbox: mailbox.clone(),
        };
        self.mailboxes.lock().iter().map(handle).collect()
    }

    /// Starts the worker of a partition, if there is none. Returns false while the workers' supervisor does not run (it restarts, or the tree
    /// stops), and until the former worker of the partition has ended.
    pub fn start(&self, partition: PartitionNo) -> bool {
        if self.mailboxes.lock().contains_key(&partition) {
            return true;
        }
        let (mailbox, spec) = (self.spec)(partition);
        if let Err(error) = self.bus.start_child(self.supervisor, spec) {
            tracing::debug!(event = "worker_start_failed", partition = partition.0, error = %error, "a worker could not be started yet");
            return false;
        }
        self.mailboxes.lock().insert(partition, mailbox);
        true
    }

    /// Removes the worker of a partition that was handed over.
    pub async fn remove(&self, partition: PartitionNo) {
        self.mailboxes.lock().remove(&partition);
        if let Err(error) = self.bus.remove_child(self.supervisor, &worker_id(partition)).await {
            tracing::warn!(event = "worker_not_removed", partition = partition.0, error = %error, "the worker of partition {} could not be removed: {error}", partition.0);
        }
    }
}

/// A worker's name below its supervisor.
pub fn worker_id(partition: PartitionNo) -> String {
    format!("partition-worker-{partition}")
}
