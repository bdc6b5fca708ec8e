//! Options of the embedded store, with defaults that run. Every bound has its reason.
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ports::clock::Clock;
use ports::partitions::InstanceId;

/// The thread on which write commands run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriterMode {
    /// A dedicated thread with group commit. A command returns after its commit is on the disk.
    Thread,
    /// The calling thread; each command runs at once. For simulations in virtual time: there is no thread that a paused clock does not wait
    /// for, and no fsync, because a simulated crash drops the handle and never cuts the power.
    Inline,
}

/// Options with which the store is opened.
#[derive(Clone)]
pub struct Options {
    /// The data folder; created if it is missing.
    pub folder: PathBuf,
    /// The store's clock, the only measure of leases, due times and ages.
    pub clock: Arc<dyn Clock>,
    /// The id of this instance, written into the lock file and shown by another service that finds the folder locked.
    pub instance: InstanceId,
    /// The address on which this service listens, written and shown in the same way. [`crate::Embedded::announce`] sets it later.
    pub address: String,
    /// The thread that runs write commands.
    pub writer_mode: WriterMode,
    /// The number of outbox partitions. Fixed when the folder is first used: a key must not change its partition while its events wait.
    pub partitions: u32,
    /// The number of partitions of a topic that this store creates.
    pub topic_partitions: u32,
    /// Partitions of the topics that have a number of their own, by name.
    pub partitions_by_topic: HashMap<String, u32>,
    /// The id of a new installation; `None` generates a random one.
    pub installation: Option<Arc<str>>,
    /// Page cache of the writer in KiB. Small, because the whole process should idle below 60 MB.
    pub cache_kib: u32,
    /// Commands that may wait for the writer; another one is refused at once. A slow disk takes about a second for this many.
    pub queue_max: usize,
    /// Most commands in one commit: beyond this a larger group only adds latency.
    pub group_max: usize,
    /// The number of connections for reads.
    pub readers: usize,
    /// Longest delay of a retry. An opened store brings rows that are due later than after this time (or [`outbox::limits::TRIAL_INTERVAL`])
    /// forward: a clock that was ahead had set their time.
    pub retry_delay_max: Duration,
    /// Largest value of a record in bytes; the default is Kafka's.
    pub record_bytes_max: usize,
    /// Time for which the log keeps a record that every group has read.
    pub log_retention: Duration,
    /// Longest wait for the writer when the store is closed.
    pub close_timeout: Duration,
    /// Metrics that receive the duration of each command, by operation.
    pub metrics: Option<Arc<telemetry::Metrics>>,
}

impl Options {
    /// The default options for a service with this instance id on this folder.
    pub fn new(folder: impl Into<PathBuf>, instance: InstanceId, clock: Arc<dyn Clock>) -> Self {
        Self {
            folder: folder.into(),
            clock,
            instance,
            address: String::new(),
            writer_mode: WriterMode::Thread,
            partitions: 64,
            topic_partitions: 12,
            partitions_by_topic: HashMap::new(),
            installation: None,
            cache_kib: 16 * 1024,
            queue_max: 8192,
            group_max: 1024,
            readers: 2,
            retry_delay_max: outbox::RetryPolicy::default().max,
            record_bytes_max: 1024 * 1024,
            log_retention: Duration::from_secs(7 * 24 * 3600),
            close_timeout: Duration::from_secs(10),
            metrics: None,
        }
    }
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("folder", &self.folder)
            .field("writer_mode", &self.writer_mode)
            .finish_non_exhaustive()
    }
}
