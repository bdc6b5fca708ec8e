//! What the store may be told, and why it could not be opened.
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ports::Error;
use ports::clock::Rng;
use ports::partitions::InstanceId;
use secrecy::SecretString;

/// What is done with a Redis that may lose what it was told: no append-only file, no fsync of it, or eviction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// It is no store for orders.
    #[default]
    Refuse,
    /// Whoever runs it knows: one warning.
    Warn,
}

/// How the store is used.
#[derive(Clone)]
pub struct StoreOptions {
    /// `redis://[user:password@]host:port/db`. Secret: it may hold a password.
    pub url: SecretString,
    /// This service.
    pub instance: InstanceId,
    /// Where it listens, for whoever finds its name taken.
    pub address: String,
    /// Stands before every name; two installations on one server differ in it or in the database.
    pub prefix: String,
    /// The number of partitions a new installation gets.
    pub partitions: u32,
    /// Most connections of this instance. Commits that come together share an fsync, so many are worth having.
    pub connections: usize,
    /// Whether instances wake each other; without it another instance's rows wait for the poll.
    pub wakes: bool,
    /// What is done with a Redis that may lose data.
    pub durability: Durability,
    /// A holder that is silent for so long is dead, where its connections cannot be looked at.
    pub dead_after: Duration,
    /// How often the sign of life is renewed.
    pub heartbeat: Duration,
    /// Longest wait for an answer: a claim of a thousand rows takes some milliseconds, a fork of a large server some hundred.
    pub answer_within: Duration,
    /// Draws the boot's and the installation's name.
    pub dice: Arc<dyn Rng>,
    /// Where latencies are counted.
    pub metrics: Option<Arc<telemetry::Metrics>>,
}

impl StoreOptions {
    /// The defaults, for a service of this name.
    pub fn new(url: impl Into<SecretString>, instance: InstanceId, dice: Arc<dyn Rng>) -> Self {
        Self {
            url: url.into(),
            instance,
            address: String::new(),
            prefix: "posthaste:".into(),
            partitions: 64,
            connections: 64,
            wakes: true,
            durability: Durability::default(),
            dead_after: Duration::from_secs(15),
            heartbeat: Duration::from_secs(3),
            answer_within: Duration::from_secs(2),
            dice,
            metrics: None,
        }
    }
}

/// Without the URL, which may hold a password.
impl fmt::Debug for StoreOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("StoreOptions");
        shown.field("instance", &self.instance).field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

/// Why the store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum StoreOpenError {
    /// The URL cannot be used, or something is zero that must not be.
    #[error("store.url: {0}")]
    Options(String),
    /// It does not answer, or is not ready.
    #[error("Redis is not there: {0}")]
    Away(Error),
    /// A living process has this name.
    #[error("instance {instance} is running as process {pid} at {address}; stop it, or set another instance.id")]
    Held {
        /// The name.
        instance: String,
        /// The holder's process.
        pid: String,
        /// Where it listens.
        address: String,
    },
    /// It may forget what it was told.
    #[error("this Redis may lose orders: {0}; mend that, or set store.durability = \"warn\" if losing some is no harm")]
    MayLose(String),
    /// It was installed with another number.
    #[error(
        "outbox.partitions is {configured}, but this installation has {installed}; that number is fixed when it is first used"
    )]
    Partitions {
        /// In the configuration.
        configured: u32,
        /// In Redis.
        installed: u32,
    },
    /// Nothing was ever installed here, and whoever only looks installs nothing.
    #[error("there is no installation in this Redis; start the service once")]
    Absent,
}

impl StoreOpenError {
    /// Whether waiting may help.
    pub fn may_pass(&self) -> bool {
        matches!(
            self,
            StoreOpenError::Away(Error::Unreachable(_) | Error::Unknown(_) | Error::Overloaded(_) | Error::Full(_))
        )
    }

    /// Whether the configuration is to blame.
    pub fn is_config(&self) -> bool {
        matches!(self, StoreOpenError::Options(_) | StoreOpenError::Partitions { .. })
    }
}
