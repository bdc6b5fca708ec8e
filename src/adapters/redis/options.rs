//! What the Redis adapter may be told, with defaults that run. Every bound has its reason.
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ports::clock::Rng;
use ports::partitions::InstanceId;
use secrecy::SecretString;

/// How Redis is used.
#[derive(Clone)]
pub struct Options {
    /// `redis://[user:password@]host:port/db` or `unix://…`. Secret: it may hold a password.
    pub url: SecretString,
    /// This service: the holder of the keys it takes.
    pub instance: InstanceId,
    /// Draws the boot's name and the jitter of expiries.
    pub dice: Arc<dyn Rng>,
    /// Stands before every name in Redis, policies apart. Without braces: those choose the slot in a cluster.
    pub prefix: String,
    /// Stands before the policies that operators write: `<this>{tier}:{class}:capacity` and `…:windowMs`.
    pub policies: String,
    /// What a policy has that only one of its two keys was written for: requests per window.
    pub capacity: u32,
    /// The same: the window.
    pub window: Duration,
    /// Most connections. A call has one to itself for two round trips, so 32 carry some thousand requests a second at half a
    /// millisecond each; a server's default of 10,000 clients still has room for 300 instances.
    pub connections: usize,
    /// Longest wait for a free connection: a pool that stays empty for so long is overload, and every port has a way around it.
    pub connection_wait: Duration,
    /// Longest time to find a connection that answers, a new one included. A neighbour connects in one millisecond, another zone in
    /// five; what takes a hundred times that is not there.
    pub connect_within: Duration,
    /// Longest wait for an answer. Our scripts take microseconds, and a fork of a large server stops it for a tenth of a second or two;
    /// a request waits this long once, before the keeper takes over.
    pub answer_within: Duration,
    /// The keeper's first pause while the server is away, doubled up to [`Options::retry_max`].
    pub retry_first: Duration,
    /// The keeper's longest pause: the server is used again within this time after it is back.
    pub retry_max: Duration,
    /// How long a sign of life lasts: after it a process counts as dead, and the keys it holds are free.
    pub dead_after: Duration,
    /// How often the sign of life is renewed: four may be lost.
    pub heartbeat: Duration,
    /// Most keys whose end is told later, when the server is back: a second's creates. What is beyond stays locked for its lock's time.
    pub debts_max: usize,
    /// How long a cached order is believed; up to a fifth is taken off, so that entries do not expire together.
    pub order_ttl: Duration,
    /// How long an epoch must be known before orders are cached under it: longer than any request holds an order that it has read, so
    /// that nothing read before an outage is cached after it. The request's deadline.
    pub settle: Duration,
    /// Where latencies and failures are counted.
    pub metrics: Option<Arc<telemetry::Metrics>>,
}

impl Options {
    /// The defaults, for a service of this name.
    pub fn new(url: impl Into<SecretString>, instance: InstanceId, dice: Arc<dyn Rng>) -> Self {
        Self {
            url: url.into(),
            instance,
            dice,
            prefix: "posthaste:".into(),
            policies: "rate_limit:config:".into(),
            capacity: 120,
            window: Duration::from_secs(60),
            connections: 32,
            connection_wait: Duration::from_millis(100),
            connect_within: Duration::from_millis(500),
            answer_within: Duration::from_millis(250),
            retry_first: Duration::from_millis(50),
            retry_max: Duration::from_secs(1),
            dead_after: Duration::from_secs(15),
            heartbeat: Duration::from_secs(3),
            debts_max: 1024,
            order_ttl: Duration::from_secs(300),
            settle: Duration::from_secs(10),
            metrics: None,
        }
    }
}

/// Without the URL, which may hold a password.
impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("instance", &self.instance)
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}
