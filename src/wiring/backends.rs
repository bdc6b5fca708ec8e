//! The opened ports of the configured store, broker and cache, and the handles that announce, monitor and close them.
pub(super) mod running_tasks;
pub(super) mod span_export;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use actors::ProducerSlots;
use embedded::Embedded;
use ports::Error;
use ports::broker::Broker;
use ports::broker::consumer_groups::ConsumerGroups;
use ports::broker::topic_log::TopicLog;
use ports::broker::topics::TopicReader;
use ports::endpoint::webhooks::WebhookStore;
use ports::inbox::Inbox;
use ports::operators::OutboxOperators;
use ports::operators::redrives::RedriveLedger;
use ports::orders::OrderStore;
use ports::orders::cache::OrderCache;
use ports::orders::idempotency::Idempotency;
use ports::outbox::OutboxStore;
use ports::outbox::events::EventStore;
use ports::partitions::PartitionLeases;
use ports::partitions::wake::WakeChannel;
use ports::probe::Probe;
use ports::rate_limit::RateLimiter;

use running_tasks::RunningTasks;

/// Longest time of a stop that is kept for closing the store, when the actors need all the rest.
const CLOSE_TIME_MAX: Duration = Duration::from_secs(1);

/// The part of a stop's deadline that is kept for closing the store.
pub(crate) fn close_time(deadline: Duration) -> Duration {
    CLOSE_TIME_MAX.min(deadline / 5)
}

/// The ports that every store implements.
#[derive(Clone)]
pub(super) struct StorePorts {
    pub orders: Arc<dyn OrderStore>,
    pub outbox: Arc<dyn OutboxStore>,
    pub events: Arc<dyn EventStore>,
    pub operators: Arc<dyn OutboxOperators>,
    pub redrives: Arc<dyn RedriveLedger>,
    pub leases: Arc<dyn PartitionLeases>,
    pub inbox: Arc<dyn Inbox>,
    pub webhooks: Arc<dyn WebhookStore>,
    pub idempotency: Arc<dyn Idempotency>,
}

impl StorePorts {
    pub(super) fn new<S>(store: &S, idempotency: Arc<dyn Idempotency>) -> Self
    where
        S: OrderStore
            + OutboxStore
            + EventStore
            + OutboxOperators
            + RedriveLedger
            + PartitionLeases
            + Inbox
            + WebhookStore
            + Clone
            + 'static,
    {
        let store = Arc::new(store.clone());
        Self {
            orders: store.clone(),
            outbox: store.clone(),
            events: store.clone(),
            operators: store.clone(),
            redrives: store.clone(),
            leases: store.clone(),
            inbox: store.clone(),
            webhooks: store,
            idempotency,
        }
    }
}

/// The ports that every broker implements.
#[derive(Clone)]
pub(super) struct BrokerPorts {
    pub broker: Arc<dyn Broker>,
    pub consumer_groups: Arc<dyn ConsumerGroups>,
    pub topics: Arc<dyn TopicReader>,
    /// The log that serves readers over HTTP; `None` where the broker's own clients read it.
    pub log: Option<Arc<dyn TopicLog>>,
    pub probe: Arc<dyn Probe>,
    /// Number of transactional producers, and how partitions are assigned to them.
    pub producer_slots: ProducerSlots,
}

/// The ports that every cache implements.
#[derive(Clone)]
pub(super) struct CachePorts {
    pub cache: Arc<dyn OrderCache>,
    pub rate_limiter: Arc<dyn RateLimiter>,
    /// The fast check before the store's durable record; `None` where the store has it.
    pub idempotency: Option<Arc<dyn Idempotency>>,
    pub probe: Option<Arc<dyn Probe>>,
}

/// The opened backends of one service.
pub(super) struct Backends {
    pub store: StorePorts,
    pub store_probe: Arc<dyn Probe>,
    pub broker: Option<BrokerPorts>,
    pub cache: CachePorts,
    pub wake_channel: Option<Arc<dyn WakeChannel>>,
    pub handles: BackendHandles,
}

impl Backends {
    /// The probes of store, broker and cache, as far as each has one.
    pub(super) fn probes(&self) -> Vec<Arc<dyn Probe>> {
        let mut probes = vec![Arc::clone(&self.store_probe)];
        probes.extend(self.broker.as_ref().map(|broker| Arc::clone(&broker.probe)));
        probes.extend(self.cache.probe.clone());
        probes
    }
}

/// The backends of a running service: announces its addresses, reports the loss of its instance id, and closes them.
pub(crate) struct BackendHandles {
    pub(super) store: StoreHandle,
    /// Names the installation in Kafka and Redis, which several installations may share.
    #[cfg_attr(not(any(feature = "kafka", feature = "redis")), expect(dead_code, reason = "nothing is shared"))]
    pub(super) installation: Arc<str>,
    #[cfg(feature = "redis")]
    pub(super) redis: Option<redis::Redis>,
    /// Tasks that use the store and the broker, and that no request waits for.
    pub(super) tasks: RunningTasks,
}

/// How long a start waits for its addresses to be stored. Nothing depends on them, so a slow store delays neither the start nor a stop.
const ANNOUNCE_WAIT: Duration = Duration::from_millis(500);

/// The configured store by its own type, for calls that are on no port.
#[derive(Clone)]
pub(super) enum StoreHandle {
    Embedded(Embedded),
    #[cfg(feature = "postgres")]
    Postgres(postgres::Postgres),
    #[cfg(feature = "redis")]
    Redis(redis::RedisStore),
}

impl StoreHandle {
    async fn announce(&self, addresses: &str) -> Result<(), Error> {
        match self {
            StoreHandle::Embedded(store) => store.announce(addresses),
            #[cfg(feature = "postgres")]
            StoreHandle::Postgres(store) => store.announce(addresses).await,
            #[cfg(feature = "redis")]
            StoreHandle::Redis(store) => store.announce(addresses).await,
        }
    }
}

impl BackendHandles {
    /// Must be called inside the runtime of the process.
    pub(super) fn new(store: StoreHandle, installation: &str) -> Self {
        Self {
            store,
            installation: installation.into(),
            #[cfg(feature = "redis")]
            redis: None,
            tasks: RunningTasks::new(),
        }
    }

    /// Stores the service's addresses with its instance id. A second process that finds the id in use reports them.
    pub(crate) async fn announce(&self, addresses: &[SocketAddr]) {
        let addresses: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
        let (store, addresses) = (self.store.clone(), addresses.join(" "));
        let announcement = tokio::spawn(async move {
            if let Err(error) = store.announce(&addresses).await {
                tracing::warn!(
                    event = "announce_failed",
                    error = %error,
                    "the listening addresses could not be stored; a second process with this instance id cannot report them"
                );
            }
        });
        let _ = tokio::time::timeout(ANNOUNCE_WAIT, announcement).await;
    }

    /// Resolves when another process has taken over the instance id: from then on the store rejects this process's writes. Never resolves
    /// for the embedded store, whose file lock prevents it. Cancel-safe.
    pub(crate) async fn instance_id_lost(&self) -> String {
        match &self.store {
            StoreHandle::Embedded(_) => std::future::pending().await,
            #[cfg(feature = "postgres")]
            StoreHandle::Postgres(store) => {
                let taken_over = store.instance_id_taken_over().await;
                format!("the instance id {} was taken over by {}", taken_over.instance, taken_over.by)
            }
            #[cfg(feature = "redis")]
            StoreHandle::Redis(store) => {
                let taken_over = store.instance_id_taken_over().await;
                format!("the instance id {} was taken over by {}", taken_over.instance, taken_over.by)
            }
        }
    }

    /// Closes the cache, then the store. A failure is logged: the next start repairs an unclean store.
    pub(crate) async fn close(&self) {
        log_close_failure(self.close_all().await);
    }

    /// Waits for the tasks of requests, then closes as [`BackendHandles::close`] does, all within `time`. The last part of it, `to_close`, is for
    /// closing alone.
    pub(crate) async fn close_within(&self, time: Duration, to_close: Duration) {
        let started = Instant::now();
        // A redrive that does not end in time leaves its reservations, which expire.
        let _ = tokio::time::timeout(time.saturating_sub(to_close), self.tasks.ended()).await;
        let time = time.saturating_sub(started.elapsed());
        let late = |_| Err(Error::Unreachable("it did not close in time".into()));
        log_close_failure(tokio::time::timeout(time, self.close_all()).await.unwrap_or_else(late));
    }

    async fn close_all(&self) -> Result<(), Error> {
        #[cfg(feature = "redis")]
        if let Some(redis) = &self.redis {
            redis.close().await;
        }
        match &self.store {
            StoreHandle::Embedded(store) => store.close().await,
            #[cfg(feature = "postgres")]
            StoreHandle::Postgres(store) => store.close().await,
            #[cfg(feature = "redis")]
            StoreHandle::Redis(store) => store.close().await,
        }
    }
}

fn log_close_failure(result: Result<(), Error>) {
    if let Err(error) = result {
        tracing::warn!(event = "close_failed", error = %error, "the store was not closed cleanly; the next start repairs it");
    }
}
