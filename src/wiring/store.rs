//! Opens the configured store, with one match arm per store.
use std::sync::Arc;

use embedded::{Embedded, OpenError, StoreProbe};
use memory::Memory;
use ports::clock::Clock;
use ports::orders::idempotency::Idempotency;
use ports::partitions::InstanceId;
use ports::partitions::wake::WakeChannel;
use ports::probe::Probe;
use telemetry::Metrics;

use super::backends::{BackendHandles, StoreHandle, StorePorts};
use super::start_error::StartError;
use crate::config::{Config, StoreKind};

/// The parameters of opening any store.
pub(super) struct StoreOpener<'a> {
    pub config: &'a Config,
    pub instance: &'a InstanceId,
    pub clock: &'a Arc<dyn Clock>,
    pub metrics: &'a Arc<Metrics>,
}

/// An opened store as its ports, which no service uses yet.
pub(super) struct WiredStore {
    pub ports: StorePorts,
    pub probe: Arc<dyn Probe>,
    pub wake_channel: Option<Arc<dyn WakeChannel>>,
    pub handles: BackendHandles,
}

/// Idempotency keys in memory: an embedded store has only one process.
pub(super) fn memory_idempotency(clock: &Arc<dyn Clock>) -> Arc<dyn Idempotency> {
    Arc::new(Memory::new(&memory::Options::default(), Arc::clone(clock)))
}

/// Opens the configured store under this instance id, with one attempt.
pub(super) async fn open_once(config: &Config, instance: &str) -> Result<WiredStore, StartError> {
    let clock = Arc::new(memory::SystemClock::new()) as Arc<dyn Clock>;
    let (instance, metrics) = (InstanceId(instance.into()), Metrics::new());
    let opener = StoreOpener { config, instance: &instance, clock: &clock, metrics: &metrics };
    opener.open().await.map_err(|failure| failure.error)
}

/// Checks the store's settings with its own parser, and connects to nothing.
pub(super) fn check(config: &Config) -> Result<(), StartError> {
    match config.store.kind {
        StoreKind::Embedded => Ok(()),
        #[cfg(feature = "postgres")]
        StoreKind::Postgres => {
            postgres::Postgres::check(super::options::postgres_for_operator(config)).map_err(from_postgres_error)
        }
        #[cfg(not(feature = "postgres"))]
        StoreKind::Postgres => Err(feature_missing("store.kind", "postgres")),
        #[cfg(feature = "redis")]
        StoreKind::Redis => {
            redis::RedisStore::check(&super::options::redis_store_for_operator(config)).map_err(from_redis_error)
        }
        #[cfg(not(feature = "redis"))]
        StoreKind::Redis => Err(feature_missing("store.kind", "redis")),
    }
}

/// A failed attempt to open the store.
pub(super) struct OpenFailure {
    pub error: StartError,
    pub kind: OpenFailureKind,
}

#[cfg(not(all(feature = "postgres", feature = "redis")))]
impl OpenFailure {
    fn permanent(error: StartError) -> Self {
        Self { error, kind: OpenFailureKind::Permanent }
    }
}

/// Whether another attempt to open the store may succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OpenFailureKind {
    /// No attempt succeeds until an operator acts.
    Permanent,
    /// Another process holds the instance id or the data folder, and may be ending.
    Held,
    /// The store cannot be reached, or its disk is full.
    Unavailable,
}

impl OpenFailureKind {
    fn new(held: bool, temporary: bool) -> Self {
        match (held, temporary) {
            (true, _) => OpenFailureKind::Held,
            (false, true) => OpenFailureKind::Unavailable,
            (false, false) => OpenFailureKind::Permanent,
        }
    }
}

impl StoreOpener<'_> {
    /// Opens the configured store with one attempt.
    pub(super) async fn open(&self) -> Result<WiredStore, OpenFailure> {
        match self.config.store.kind {
            StoreKind::Embedded => self.embedded().await,
            #[cfg(feature = "postgres")]
            StoreKind::Postgres => self.postgres().await,
            #[cfg(not(feature = "postgres"))]
            StoreKind::Postgres => Err(OpenFailure::permanent(feature_missing("store.kind", "postgres"))),
            #[cfg(feature = "redis")]
            StoreKind::Redis => self.redis().await,
            #[cfg(not(feature = "redis"))]
            StoreKind::Redis => Err(OpenFailure::permanent(feature_missing("store.kind", "redis"))),
        }
    }

    async fn embedded(&self) -> Result<WiredStore, OpenFailure> {
        let config = self.config;
        let mut options = embedded::Options::new(&config.store.path, self.instance.clone(), Arc::clone(self.clock));
        options.address = config.http.listen.to_string();
        options.partitions = config.outbox.partitions;
        options.topic_partitions = config.broker.topic_partitions;
        options.partitions_by_topic = config.partitions_by_topic();
        options.retry_delay_max = config.relay_rules().retry_delay_max();
        options.log_retention = config.broker.retention;
        options.metrics = Some(Arc::clone(self.metrics));
        // The calling thread also receives the signals, and opening a file may wait for a disk or another process.
        let opening = tokio::task::spawn_blocking(move || Embedded::open(options)).await;
        let opened = opening.unwrap_or_else(|panicked| std::panic::resume_unwind(panicked.into_panic()));
        let store = opened.map_err(|error| {
            let is_held = matches!(error, OpenError::Held { .. } | OpenError::Locked { .. });
            let kind = OpenFailureKind::new(is_held, error.is_temporary());
            let is_config = matches!(error, OpenError::PartitionsChanged { .. });
            let start_error = if is_config { StartError::Config } else { StartError::Store };
            OpenFailure { error: start_error(error.to_string()), kind }
        })?;
        Ok(WiredStore {
            ports: StorePorts::new(&store, memory_idempotency(self.clock)),
            probe: Arc::new(StoreProbe(store.clone())),
            wake_channel: None,
            handles: BackendHandles::new(StoreHandle::Embedded(store.clone()), store.installation()),
        })
    }

    #[cfg(feature = "postgres")]
    async fn postgres(&self) -> Result<WiredStore, OpenFailure> {
        use postgres::{Postgres, PostgresOpenError, PostgresProbe};
        let options = super::options::postgres(self.config, self.instance, self.metrics);
        let store = Postgres::open(options).await.map_err(|error| {
            let kind = OpenFailureKind::new(matches!(error, PostgresOpenError::Held { .. }), error.is_temporary());
            OpenFailure { error: from_postgres_error(error), kind }
        })?;
        Ok(WiredStore {
            ports: StorePorts::new(&store, Arc::new(store.clone())),
            probe: Arc::new(PostgresProbe(store.clone())),
            wake_channel: Some(Arc::new(store.clone())),
            handles: BackendHandles::new(StoreHandle::Postgres(store.clone()), store.installation()),
        })
    }
}

#[cfg(feature = "redis")]
impl StoreOpener<'_> {
    async fn redis(&self) -> Result<WiredStore, OpenFailure> {
        use redis::{RedisStore, RedisStoreProbe, StoreOpenError};
        let options = super::options::redis_store(self.config, self.instance, self.metrics);
        let store = Box::pin(RedisStore::open(options)).await.map_err(|error| {
            let kind = OpenFailureKind::new(matches!(error, StoreOpenError::Held { .. }), error.is_temporary());
            OpenFailure { error: from_redis_error(error), kind }
        })?;
        Ok(WiredStore {
            ports: StorePorts::new(&store, Arc::new(store.clone())),
            probe: Arc::new(RedisStoreProbe(store.clone())),
            wake_channel: Some(Arc::new(store.clone())),
            handles: BackendHandles::new(StoreHandle::Redis(store.clone()), store.installation()),
        })
    }
}

/// A configuration error where the settings are wrong, otherwise an error of the store.
#[cfg(feature = "redis")]
pub(super) fn from_redis_error(error: redis::StoreOpenError) -> StartError {
    if error.is_config() { StartError::Config(error.to_string()) } else { StartError::Store(error.to_string()) }
}

/// The error for a backend whose feature is not compiled in.
#[cfg(not(all(feature = "postgres", feature = "kafka", feature = "redis")))]
pub(super) fn feature_missing(key: &str, value: &str) -> StartError {
    StartError::Config(format!("{key} = \"{value}\": this program was built without it"))
}

/// A configuration error where the settings are wrong, otherwise an error of the store.
#[cfg(feature = "postgres")]
pub(super) fn from_postgres_error(error: postgres::PostgresOpenError) -> StartError {
    if error.is_config() { StartError::Config(error.to_string()) } else { StartError::Store(error.to_string()) }
}
