//! The ports, opened, whichever backends stand behind them.
use std::net::SocketAddr;
use std::sync::Arc;

use actors::ProducerSlots;
use embedded::Embedded;
use ports::broker::Broker;
use ports::broker::consumer_groups::ConsumerGroups;
use ports::broker::topics::TopicReader;
use ports::inbox::Inbox;
use ports::operators::OutboxOperators;
use ports::operators::redrives::RedriveLedger;
use ports::orders::OrderStore;
use ports::orders::cache::OrderCache;
use ports::orders::idempotency::Idempotency;
use ports::outbox::OutboxStore;
use ports::partitions::PartitionLeases;
use ports::partitions::wake::WakeChannel;
use ports::probe::Probe;
use ports::rate_limit::RateLimiter;

/// What a store offers, whichever it is.
#[derive(Clone)]
pub(super) struct StorePorts {
    pub orders: Arc<dyn OrderStore>,
    pub outbox: Arc<dyn OutboxStore>,
    pub operators: Arc<dyn OutboxOperators>,
    pub redrives: Arc<dyn RedriveLedger>,
    pub leases: Arc<dyn PartitionLeases>,
    pub inbox: Arc<dyn Inbox>,
    pub idempotency: Arc<dyn Idempotency>,
}

impl StorePorts {
    pub(super) fn of<S>(store: &S, idempotency: Arc<dyn Idempotency>) -> Self
    where
        S: OrderStore + OutboxStore + OutboxOperators + RedriveLedger + PartitionLeases + Inbox + Clone + 'static,
    {
        let store = Arc::new(store.clone());
        Self {
            orders: store.clone(),
            outbox: store.clone(),
            operators: store.clone(),
            redrives: store.clone(),
            leases: store.clone(),
            inbox: store,
            idempotency,
        }
    }
}

/// What a broker offers, whichever it is.
#[derive(Clone)]
pub(super) struct BrokerPorts {
    pub broker: Arc<dyn Broker>,
    pub sources: Arc<dyn ConsumerGroups>,
    pub topics: Arc<dyn TopicReader>,
    pub probe: Arc<dyn Probe>,
    /// Lanes that the relay may use.
    pub lanes: ProducerSlots,
}

/// What keeps answers and counts requests.
#[derive(Clone)]
pub(super) struct CachePorts {
    pub cache: Arc<dyn OrderCache>,
    pub limits: Arc<dyn RateLimiter>,
    /// The first line of idempotency, where it is not the store's.
    pub idempotency: Option<Arc<dyn Idempotency>>,
    pub probe: Option<Arc<dyn Probe>>,
}

/// Everything a service stands on.
pub(super) struct Backends {
    pub store: StorePorts,
    pub store_probe: Arc<dyn Probe>,
    pub broker: Option<BrokerPorts>,
    pub cache: CachePorts,
    pub wakes: Option<Arc<dyn WakeChannel>>,
    pub held: Held,
}

impl Backends {
    /// Every dependency's probe.
    pub(super) fn probes(&self) -> Vec<Arc<dyn Probe>> {
        let mut probes = vec![Arc::clone(&self.store_probe)];
        probes.extend(self.broker.as_ref().map(|broker| Arc::clone(&broker.probe)));
        probes.extend(self.cache.probe.clone());
        probes
    }
}

/// What is held while the service runs: told where it listens, watched, and closed at the end.
pub(crate) struct Held {
    pub(super) store: StoreHeld,
    /// Names the installation, for whatever it shares with others.
    #[cfg_attr(not(any(feature = "kafka", feature = "redis")), expect(dead_code, reason = "nothing is shared"))]
    pub(super) installation: Arc<str>,
    #[cfg(feature = "redis")]
    pub(super) redis: Option<redis::Redis>,
}

/// The store behind the ports.
pub(super) enum StoreHeld {
    Embedded(Embedded),
    #[cfg(feature = "postgres")]
    Postgres(postgres::Postgres),
    #[cfg(feature = "redis")]
    Redis(redis::RedisStore),
}

impl Held {
    pub(super) fn new(store: StoreHeld, installation: &str) -> Self {
        Self {
            store,
            installation: installation.into(),
            #[cfg(feature = "redis")]
            redis: None,
        }
    }

    /// Tells whoever finds our name taken where we listen.
    pub(crate) async fn announce(&self, addresses: &[SocketAddr]) {
        let addresses: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
        let addresses = addresses.join(" ");
        let told = match &self.store {
            StoreHeld::Embedded(store) => store.announce(&addresses),
            #[cfg(feature = "postgres")]
            StoreHeld::Postgres(store) => store.announce(&addresses).await,
            #[cfg(feature = "redis")]
            StoreHeld::Redis(store) => store.announce(&addresses).await,
        };
        if let Err(error) = told {
            tracing::warn!(event = "announce_failed", error = %error, "whoever finds our name taken is not told where we listen");
        }
    }

    /// Resolves when another process has taken our name: nothing that we do counts any more. Never, where a lock forbids it.
    pub(crate) async fn lost(&self) -> String {
        match &self.store {
            StoreHeld::Embedded(_) => std::future::pending().await,
            #[cfg(feature = "postgres")]
            StoreHeld::Postgres(store) => {
                let postgres::NameLost { instance, by } = store.lost().await;
                format!("the name {instance} has been taken by {by}")
            }
            #[cfg(feature = "redis")]
            StoreHeld::Redis(store) => {
                let redis::NameTakenOver { instance } = store.lost().await;
                format!("the name {instance} has been taken by another process")
            }
        }
    }

    /// Closes in order.
    pub(crate) async fn close(&self) {
        #[cfg(feature = "redis")]
        if let Some(redis) = &self.redis {
            redis.close().await;
        }
        let closed = match &self.store {
            StoreHeld::Embedded(store) => store.close().await,
            #[cfg(feature = "postgres")]
            StoreHeld::Postgres(store) => store.close().await,
            #[cfg(feature = "redis")]
            StoreHeld::Redis(store) => store.close().await,
        };
        if let Err(error) = closed {
            tracing::warn!(event = "close_failed", error = %error, "the store was not closed in order; the next start repairs it");
        }
    }
}
