//! One match arm per store.
use std::sync::Arc;

use embedded::{Embedded, OpenError, StoreProbe};
use memory::Memory;
use ports::clock::Clock;
use ports::orders::idempotency::Idempotency;
use ports::partitions::InstanceId;
use ports::partitions::wake::WakeChannel;
use ports::probe::Probe;
use telemetry::Metrics;

use super::backends::{Held, StoreHeld, StorePorts};
use super::start_error::StartError;
use crate::config::{Config, StoreKind};

/// What opening any store needs.
pub(super) struct Opening<'a> {
    pub config: &'a Config,
    pub instance: &'a InstanceId,
    pub clock: &'a Arc<dyn Clock>,
    pub metrics: &'a Arc<Metrics>,
}

/// An opened store.
pub(super) struct Opened {
    pub ports: StorePorts,
    pub probe: Arc<dyn Probe>,
    pub wakes: Option<Arc<dyn WakeChannel>>,
    pub held: Held,
}

/// Idempotency keys of the one process that uses an embedded store.
pub(super) fn in_memory(clock: &Arc<dyn Clock>) -> Arc<dyn Idempotency> {
    Arc::new(Memory::new(&memory::Options::default(), Arc::clone(clock)))
}

/// Opens the configured store under this instance id, without waiting for it.
pub(super) async fn open_once(config: &Config, instance: &str) -> Result<Opened, StartError> {
    let clock = Arc::new(memory::SystemClock::new()) as Arc<dyn Clock>;
    let (instance, metrics) = (InstanceId(instance.into()), Metrics::new());
    let opening = Opening { config, instance: &instance, clock: &clock, metrics: &metrics };
    opening.open().await.map_err(|not_open| not_open.error)
}

/// A store that could not be opened.
pub(super) struct NotOpen {
    pub error: StartError,
    pub patience: Patience,
}

#[cfg(not(all(feature = "postgres", feature = "redis")))]
impl NotOpen {
    fn for_good(error: StartError) -> Self {
        Self { error, patience: Patience::None }
    }
}

/// Whether waiting may help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    /// It will not.
    None,
    /// Another process holds it, and may be on its way out.
    Held,
    /// It is not there yet.
    Away,
}

impl Patience {
    fn of(held: bool, may_pass: bool) -> Self {
        match (held, may_pass) {
            (true, _) => Patience::Held,
            (false, true) => Patience::Away,
            (false, false) => Patience::None,
        }
    }
}

impl Opening<'_> {
    /// Opens the configured store, once.
    pub(super) async fn open(&self) -> Result<Opened, NotOpen> {
        match self.config.store.kind {
            StoreKind::Embedded => self.embedded(),
            #[cfg(feature = "postgres")]
            StoreKind::Postgres => self.postgres().await,
            #[cfg(not(feature = "postgres"))]
            StoreKind::Postgres => Err(NotOpen::for_good(not_built("store.kind", "postgres"))),
            #[cfg(feature = "redis")]
            StoreKind::Redis => self.redis().await,
            #[cfg(not(feature = "redis"))]
            StoreKind::Redis => Err(NotOpen::for_good(not_built("store.kind", "redis"))),
        }
    }

    fn embedded(&self) -> Result<Opened, NotOpen> {
        let config = self.config;
        let mut options = embedded::Options::new(&config.store.path, self.instance.clone(), Arc::clone(self.clock));
        options.address = config.http.listen.to_string();
        options.partitions = config.outbox.partitions;
        options.topic_partitions = config.broker.topic_partitions;
        options.log_retention = config.broker.retention;
        options.metrics = Some(Arc::clone(self.metrics));
        let store = Embedded::open(options).map_err(|error| {
            let patience = Patience::of(matches!(error, OpenError::Held { .. }), error.may_pass());
            NotOpen { error: StartError::Store(error.to_string()), patience }
        })?;
        Ok(Opened {
            ports: StorePorts::of(&store, in_memory(self.clock)),
            probe: Arc::new(StoreProbe(store.clone())),
            wakes: None,
            held: Held::new(StoreHeld::Embedded(store.clone()), store.installation()),
        })
    }

    #[cfg(feature = "postgres")]
    async fn postgres(&self) -> Result<Opened, NotOpen> {
        use postgres::{Postgres, PostgresOpenError, PostgresProbe};
        let options = super::options::postgres(self.config, self.instance, self.metrics);
        let store = Postgres::open(options).await.map_err(|error| {
            let patience = Patience::of(matches!(error, PostgresOpenError::Held { .. }), error.is_temporary());
            NotOpen { error: of_postgres(error), patience }
        })?;
        Ok(Opened {
            ports: StorePorts::of(&store, Arc::new(store.clone())),
            probe: Arc::new(PostgresProbe(store.clone())),
            wakes: Some(Arc::new(store.clone())),
            held: Held::new(StoreHeld::Postgres(store.clone()), store.installation()),
        })
    }
}

#[cfg(feature = "redis")]
impl Opening<'_> {
    async fn redis(&self) -> Result<Opened, NotOpen> {
        use redis::{RedisStore, RedisStoreProbe, StoreOpenError};
        let options = super::options::redis_store(self.config, self.instance, self.metrics);
        let store = Box::pin(RedisStore::open(options)).await.map_err(|error| {
            let patience = Patience::of(matches!(error, StoreOpenError::Held { .. }), error.is_temporary());
            NotOpen { error: of_redis(error), patience }
        })?;
        Ok(Opened {
            ports: StorePorts::of(&store, Arc::new(store.clone())),
            probe: Arc::new(RedisStoreProbe(store.clone())),
            wakes: Some(Arc::new(store.clone())),
            held: Held::new(StoreHeld::Redis(store.clone()), store.installation()),
        })
    }
}

/// Whether the configuration is to blame, or the store.
#[cfg(feature = "redis")]
pub(super) fn of_redis(error: redis::StoreOpenError) -> StartError {
    if error.is_config() { StartError::Config(error.to_string()) } else { StartError::Store(error.to_string()) }
}

/// A backend that this program does not have.
#[cfg(not(all(feature = "postgres", feature = "kafka", feature = "redis")))]
pub(super) fn not_built(key: &str, value: &str) -> StartError {
    StartError::Config(format!("{key} = \"{value}\": this program was built without it"))
}

/// Whether the configuration is to blame, or the store.
#[cfg(feature = "postgres")]
pub(super) fn of_postgres(error: postgres::PostgresOpenError) -> StartError {
    if error.is_config() { StartError::Config(error.to_string()) } else { StartError::Store(error.to_string()) }
}
