//! Options of the store, with defaults that run.
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ports::clock::Rng;
use ports::partitions::InstanceId;
use secrecy::SecretString;

/// The store's reaction to a Redis that may lose data: without an append-only file, without its fsync, or with eviction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Does not open: such a Redis is not a store for orders. If its settings change while the store is open, its probe fails.
    #[default]
    Refuse,
    /// Opens with one warning, and logs another when the settings change, because the operator accepts the risk.
    Warn,
}

/// Options of [`crate::RedisStore`], for a service or for an operator's command.
#[derive(Clone)]
pub struct StoreOptions {
    /// `redis://[user:password@]host:port/db`, or `rediss://…` for TLS. Secret, because it may contain a password.
    pub url: SecretString,
    /// PEM file with the certificate authorities that `rediss://` trusts; `None` trusts those of the system.
    pub root_certificates: Option<PathBuf>,
    /// The id of this instance, which the store holds while it is open.
    pub instance: InstanceId,
    /// The address where the service listens, shown to a second process of the same instance id.
    pub address: String,
    /// Prefix of every key; two installations on one server differ in it or in the database.
    pub prefix: String,
    /// Prefix of the idempotency keys that an earlier service wrote to this server.
    pub legacy_key_prefix: Option<String>,
    /// The number of partitions of a new installation.
    pub partitions: u32,
    /// Most calls of this instance in flight, which are the queue of its Redis: the share in use is the store's saturation. Many in flight raise
    /// the throughput, because commits share an fsync, and cost nothing on the shared connection. At 10 ms a call, an fsync of a slow disk, 512
    /// carry fifty thousand calls a second, more than a server does: only a Redis that falls behind fills them. They are more than the creates
    /// and changes that are admitted in a burst (256), and fewer than all requests of a burst (640), which fill them when Redis answers none.
    pub calls_max: usize,
    /// Time between two pages of the audit that compares indexes with rows; zero switches it off.
    pub audit_interval: Duration,
    /// Whether instances send each other wake-ups; without them another instance's rows wait for the poll.
    pub notify: bool,
    /// The reaction to a Redis that may lose data.
    pub durability: Durability,
    /// A holder of the instance id that is silent for this long is dead, if the server does not list its connections.
    pub dead_after: Duration,
    /// How long a holder of the instance id may still reconnect after the server lists no connection of it, before the id is taken over. A live
    /// holder tries again at once, and then every second at most.
    pub reconnect_time: Duration,
    /// How often the heartbeat is renewed.
    pub heartbeat_interval: Duration,
    /// Longest wait for a reply: a claim of a thousand rows takes some milliseconds, a fork of a large server some hundred.
    pub response_timeout: Duration,
    /// Draws the boot id and the installation's id.
    pub rng: Arc<dyn Rng>,
    /// Receives latencies and counts of failures.
    pub metrics: Option<Arc<telemetry::Metrics>>,
}

impl StoreOptions {
    /// The defaults for this server and instance.
    pub fn new(url: impl Into<SecretString>, instance: InstanceId, rng: Arc<dyn Rng>) -> Self {
        Self {
            url: url.into(),
            root_certificates: None,
            instance,
            address: String::new(),
            prefix: "posthaste:".into(),
            legacy_key_prefix: None,
            partitions: 64,
            calls_max: 512,
            audit_interval: Duration::from_secs(1),
            notify: true,
            durability: Durability::default(),
            dead_after: Duration::from_secs(15),
            reconnect_time: Duration::from_secs(2),
            heartbeat_interval: Duration::from_secs(3),
            response_timeout: Duration::from_secs(2),
            rng,
            metrics: None,
        }
    }
}

/// Omits the URL, which may contain a password.
impl fmt::Debug for StoreOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreOptions")
            .field("instance", &self.instance)
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}
