//! Options of a handle, with defaults that run and the reason for each bound.
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ports::clock::Rng;
use ports::partitions::InstanceId;
use secrecy::SecretString;

/// Options of [`crate::Redis`], the keys, cache and buckets that instances share.
#[derive(Clone)]
pub struct Options {
    /// `redis://[user:password@]host:port/db`, `rediss://…` for TLS, or `unix://…`. Secret, because it may contain a password.
    pub url: SecretString,
    /// PEM file with the certificate authorities that `rediss://` trusts; `None` trusts those of the system.
    pub root_certificates: Option<PathBuf>,
    /// This instance, which holds the keys that it takes.
    pub instance: InstanceId,
    /// Draws the boot id and the jitter of expiries.
    pub rng: Arc<dyn Rng>,
    /// Prefix of every key except policies. It must not contain braces, which choose the slot in a cluster.
    pub prefix: String,
    /// Prefix of the policies that operators write: `<policy_prefix>{tier}:{class}:capacity` and `…:windowMs`.
    pub policy_prefix: String,
    /// Prefix of the idempotency keys that an earlier service wrote: `<legacy_key_prefix><key>`, without a subject.
    pub legacy_key_prefix: Option<String>,
    /// Most calls in flight. They share one connection; at half a millisecond each, 256 carry half a million a second, more than a server
    /// does. Beyond it a call waits, so that a slow server has a bounded queue.
    pub calls_max: usize,
    /// Longest wait for another call to end: a server that ends none for this long is overloaded, and every port has a fallback.
    pub permit_timeout: Duration,
    /// Longest time to find a connection that answers, a new one included. A server in the same zone connects in one millisecond, another
    /// zone in five; a hundred times that is an outage.
    pub connect_timeout: Duration,
    /// Longest wait for a reply. The scripts take microseconds, and a fork of a large server stops it for a tenth of a second or two. One
    /// request waits this long before the server is marked unavailable.
    pub response_timeout: Duration,
    /// First delay of the maintenance task while the server is unavailable, doubled up to [`Options::retry_delay_max`].
    pub retry_delay_min: Duration,
    /// Longest delay of the maintenance task: the server is used again within this time after its return.
    pub retry_delay_max: Duration,
    /// Time to live of a heartbeat: after it a process counts as dead, and the keys that it holds are free.
    pub dead_after: Duration,
    /// How often the heartbeat is renewed: by default four in a row may be lost.
    pub heartbeat_interval: Duration,
    /// Most releases of keys that wait for the server's return: the creates of one second. Keys beyond it stay locked until their lock
    /// expires.
    pub pending_releases_max: usize,
    /// Time to live of a cached order.
    pub order_ttl: Duration,
    /// Time to live of the cached lists of an owner, or of all orders.
    pub list_ttl: Duration,
    /// Largest share of a time to live that is subtracted at random, so that entries do not expire together.
    pub cache_jitter: f64,
    /// How long an epoch must be known before orders are cached under it: the deadline of a request, so that no order that was read before
    /// an outage is cached after it.
    pub epoch_age_min: Duration,
    /// Receives latencies and counts of failures.
    pub metrics: Option<Arc<telemetry::Metrics>>,
}

impl Options {
    /// The defaults for this server and instance.
    pub fn new(url: impl Into<SecretString>, instance: InstanceId, rng: Arc<dyn Rng>) -> Self {
        Self {
            url: url.into(),
            root_certificates: None,
            instance,
            rng,
            prefix: "posthaste:".into(),
            policy_prefix: "rate_limit:config:".into(),
            legacy_key_prefix: None,
            calls_max: 256,
            permit_timeout: Duration::from_millis(100),
            connect_timeout: Duration::from_millis(500),
            response_timeout: Duration::from_millis(250),
            retry_delay_min: Duration::from_millis(50),
            retry_delay_max: Duration::from_secs(1),
            dead_after: Duration::from_secs(15),
            heartbeat_interval: Duration::from_secs(3),
            pending_releases_max: 1024,
            order_ttl: Duration::from_secs(300),
            list_ttl: Duration::from_secs(60),
            cache_jitter: 0.2,
            epoch_age_min: Duration::from_secs(10),
            metrics: None,
        }
    }
}

/// Omits the URL, which may contain a password.
impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("instance", &self.instance)
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}
