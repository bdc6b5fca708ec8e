//! What the embedded store may be told, with defaults that run. Every bound has its reason.
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ports::clock::Clock;
use ports::partitions::InstanceId;

/// Who runs the commands that write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriterMode {
    /// A thread of its own, with group commit; commits are on the disk before they are answered.
    Thread,
    /// The calling thread, each command at once. For simulations in virtual time: no thread, nothing that a paused clock
    /// would not wait for, and no fsync, because there a crash is a dropped handle and never a power cut.
    Inline,
}

/// How the store is opened.
#[derive(Clone)]
pub struct Options {
    /// The data folder; made if it is missing.
    pub folder: PathBuf,
    /// The store's clock: leases, due times and ages are measured by it alone.
    pub clock: Arc<dyn Clock>,
    /// The name of this service, told to whoever finds the folder locked.
    pub instance: InstanceId,
    /// Where this service listens, for the same purpose. May be told later: [`crate::Embedded::announce`].
    pub address: String,
    /// Who writes.
    pub writing: WriterMode,
    /// Shares of keys. Fixed when the folder is first used: a key must not change its partition while its events wait.
    pub partitions: u32,
    /// Partitions of a topic that is made.
    pub topic_partitions: u32,
    /// Names a new installation; `None` draws a random name.
    pub installation: Option<Arc<str>>,
    /// Page cache of the writer in KiB. Small, because the whole process should idle below 60 MB.
    pub cache_kib: u32,
    /// Commands that may wait for the writer; one more is refused at once. A second's work of a slow disk.
    pub queue: usize,
    /// Most commands in one commit: beyond this a longer group only adds latency.
    pub group_max: usize,
    /// Connections that read.
    pub readers: usize,
    /// Largest value of a record in bytes, as Kafka's default.
    pub record_bytes_max: usize,
    /// How long the log keeps a record that every group has read.
    pub log_retention: Duration,
    /// Longest wait for the writer when closing.
    pub close_within: Duration,
    /// Where durations of commands are told, by name.
    pub metrics: Option<Arc<telemetry::Metrics>>,
}

impl Options {
    /// The defaults, for a service of this name on this folder.
    pub fn new(folder: impl Into<PathBuf>, instance: InstanceId, clock: Arc<dyn Clock>) -> Self {
        Self {
            folder: folder.into(),
            clock,
            instance,
            address: String::new(),
            writing: WriterMode::Thread,
            partitions: 64,
            topic_partitions: 12,
            installation: None,
            cache_kib: 16 * 1024,
            queue: 8192,
            group_max: 1024,
            readers: 2,
            record_bytes_max: 1024 * 1024,
            log_retention: Duration::from_secs(7 * 24 * 3600),
            close_within: Duration::from_secs(10),
            metrics: None,
        }
    }
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options").field("folder", &self.folder).field("writing", &self.writing).finish_non_exhaustive()
    }
}
