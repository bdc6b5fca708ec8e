//! Data for one measurement on the configured backends, removed after it: a folder, a database, keys, topics.
use std::sync::Arc;

use app::commands;
use app::operators::outbox::OutboxOperations;
use embedded::Embedded;
use memory::SystemClock;
use ports::broker::topics::TopicReader;
use ports::clock::{Clock, Rng};
use ports::orders::OrderStore;
use ports::outbox::OutboxStore;
use ports::partitions::PartitionLeases;
use tempfile::TempDir;

use super::backends::{BackendHandles, StorePorts};
use super::operator_access::open_for_operator;
use super::start_error::StartError;
use super::store::{WiredStore, open_once};
use super::thread_rng::ThreadRng;
use crate::config::{BrokerKind, Config, StoreKind};

/// A configuration with data that no other process uses.
pub struct ThrowawayInstallation {
    /// The given configuration, with its paths, URLs and prefixes set to these data.
    pub config: Config,
    // Removed when dropped.
    _folder: TempDir,
    /// The configuration with which the database was created, and the database's name.
    database: Option<(Config, String)>,
}

/// The store of throwaway data, opened as its only instance.
pub struct ThrowawayStore {
    ports: StorePorts,
    handles: BackendHandles,
}

impl bench::OpenStore for ThrowawayStore {
    fn orders(&self) -> Arc<dyn OrderStore> {
        Arc::clone(&self.ports.orders)
    }

    fn outbox(&self) -> Arc<dyn OutboxStore> {
        Arc::clone(&self.ports.outbox)
    }

    fn leases(&self) -> Arc<dyn PartitionLeases> {
        Arc::clone(&self.ports.leases)
    }

    async fn close(&self) {
        self.handles.close().await;
    }
}

impl ThrowawayInstallation {
    /// Creates a folder, a database with its schema or keys, and topics, as far as the configured backends need them.
    ///
    /// # Errors
    /// A backend cannot be reached or refuses; nothing is left then.
    pub async fn create(configured: &Config) -> Result<Self, StartError> {
        let folder = tempfile::tempdir().map_err(|error| StartError::Store(error.to_string()))?;
        let name = format!("bench_{:08x}", rand::random::<u32>());
        let mut config = configured.clone();
        config.store.path = folder.path().to_owned();
        config.store.migrate = true;
        // The configured prefix stays in front, because access rights are often granted by prefix.
        config.broker.topic_prefix = format!("{}posthaste-{name}.", configured.broker.topic_prefix);
        config.broker.create_topics = true;
        config.store.key_prefix = format!("{}{name}:", configured.store.key_prefix);
        // Topics with full names belong to other programs.
        config.broker.topics.clear();
        config.topics.clear();
        (config.auth.issuer, config.auth.audience) = (None, None);
        let mut created = Self { config, _folder: folder, database: None };
        if configured.store.kind == StoreKind::Postgres {
            let name = format!("posthaste_{name}");
            created.config.store.url = create_database(configured, &name).await?.into();
            created.database = Some((configured.clone(), name));
        }
        // Opening the store migrates its schema.
        match open_once(&created.config, "bench").await {
            Ok(opened) => opened.handles.close().await,
            Err(error) => return created.remove().await.and(Err(error)),
        }
        match super::schema::create_missing_topics(&created.config).await {
            Ok(_) => Ok(created),
            Err(error) => created.remove().await.and(Err(error)),
        }
    }

    /// Opens the store as its only instance.
    ///
    /// # Errors
    /// The store cannot be opened.
    pub async fn open_store(&self, instance: &str) -> Result<ThrowawayStore, StartError> {
        let WiredStore { ports, handles, .. } = open_once(&self.config, instance).await?;
        Ok(ThrowawayStore { ports, handles })
    }

    /// Opens the embedded store, which is also the broker, without an instance lease, a relay or consumers; `None` for other stores.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn open_store_and_broker(&self) -> Result<Option<bench::StoreAndBroker>, StartError> {
        if self.config.store.kind != StoreKind::Embedded {
            return Ok(None);
        }
        let store = Embedded::open_for_operator(&self.config.store.path, clock())
            .map_err(|error| StartError::Store(error.to_string()))?;
        let store = Arc::new(store);
        Ok(Some(bench::StoreAndBroker {
            outbox: store.clone(),
            leases: store.clone(),
            inbox: store.clone(),
            broker: store.clone(),
            groups: store,
        }))
    }

    /// The topics of the configured broker.
    ///
    /// # Errors
    /// There is no broker, or the store that names its installation cannot be opened.
    pub async fn topics(&self) -> Result<Arc<dyn TopicReader>, StartError> {
        let topics = open_for_operator(&self.config).await?.topics;
        topics.ok_or_else(|| StartError::Broker("broker.kind is \"none\"".into()))
    }

    /// Queries and commands of operators on this store.
    ///
    /// # Errors
    /// The store cannot be opened.
    pub async fn operations(&self) -> Result<OutboxOperations, StartError> {
        Ok(open_for_operator(&self.config).await?.operations)
    }

    /// The options with which the service writes orders and their outbox rows.
    pub fn row_options(&self) -> commands::Options {
        super::options::commands(&self.config)
    }

    /// The clock for orders that a measurement writes.
    pub fn clock(&self) -> Arc<dyn Clock> {
        clock()
    }

    /// The generator for ids of orders that a measurement writes.
    pub fn rng(&self) -> Arc<dyn Rng> {
        Arc::new(ThreadRng)
    }

    /// Removes the database or the keys, and the topics; dropping `self` removes the folder.
    ///
    /// # Errors
    /// A backend cannot be reached or refuses. The error names the database, the keys or the topics that remain.
    pub async fn remove(self) -> Result<(), StartError> {
        let topics = match self.config.broker.kind {
            BrokerKind::Kafka => delete_topics(&self.config).await,
            BrokerKind::Embedded | BrokerKind::None => Ok(()),
        };
        let store = match (&self.database, self.config.store.kind) {
            (Some((configured, name)), _) => drop_database(configured, name).await,
            (None, StoreKind::Redis) => delete_keys(&self.config).await,
            (None, StoreKind::Embedded | StoreKind::Postgres) => Ok(()),
        };
        store.and(topics)
    }
}

fn clock() -> Arc<dyn Clock> {
    Arc::new(SystemClock::new())
}

/// The PostgreSQL server's settings that measurements depend on; empty for other stores.
///
/// # Errors
/// The server cannot be reached.
#[cfg(feature = "postgres")]
pub async fn server_settings(config: &Config) -> Result<Vec<(&'static str, String)>, StartError> {
    if config.store.kind != StoreKind::Postgres {
        return Ok(Vec::new());
    }
    postgres::throwaway::settings(&options(config)).await.map_err(super::store::from_postgres_error)
}

/// The environment variables with which PostgreSQL's own programs reach the configured store; `None` for other stores.
///
/// # Errors
/// `store.url` cannot be parsed.
#[cfg(feature = "postgres")]
pub fn server_environment(config: &Config) -> Result<Option<Vec<(&'static str, String)>>, StartError> {
    if config.store.kind != StoreKind::Postgres {
        return Ok(None);
    }
    postgres::throwaway::environment(&options(config)).map(Some).map_err(super::store::from_postgres_error)
}

#[cfg(feature = "postgres")]
pub(super) fn options(config: &Config) -> postgres::Options {
    let instance = ports::partitions::InstanceId("bench".into());
    super::options::postgres(config, &instance, &telemetry::Metrics::new())
}

#[cfg(feature = "postgres")]
async fn create_database(config: &Config, name: &str) -> Result<String, StartError> {
    postgres::throwaway::create_database(&options(config), name).await.map_err(super::store::from_postgres_error)
}

#[cfg(feature = "postgres")]
async fn drop_database(config: &Config, name: &str) -> Result<(), StartError> {
    let dropped = postgres::throwaway::drop_database(&options(config), name).await;
    dropped.map_err(|error| StartError::Store(format!("database {name} was not dropped: {error}")))
}

#[cfg(feature = "redis")]
async fn delete_keys(config: &Config) -> Result<(), StartError> {
    let deleted = redis::delete_throwaway_keys(&super::options::redis_store_for_operator(config)).await;
    let prefix = &config.store.key_prefix;
    deleted.map_err(|error| StartError::Store(format!("keys that begin with {prefix} were not deleted: {error}")))
}

#[cfg(feature = "kafka")]
async fn delete_topics(config: &Config) -> Result<(), StartError> {
    let instance = ports::partitions::InstanceId("bench".into());
    let options = super::options::kafka(config, &instance, &"bench".into(), &clock());
    let deleted = kafka::throwaway::delete_topics(&options).await;
    let prefix = &config.broker.topic_prefix;
    deleted.map_err(|error| StartError::Broker(format!("topics that begin with {prefix} were not deleted: {error}")))
}

/// Always empty: this program was built without PostgreSQL.
///
/// # Errors
/// Never fails; the signature is that of the other build.
#[cfg(not(feature = "postgres"))]
pub async fn server_settings(_config: &Config) -> Result<Vec<(&'static str, String)>, StartError> {
    Ok(Vec::new())
}

/// Always `None`: this program was built without PostgreSQL.
///
/// # Errors
/// Never fails; the signature is that of the other build.
#[cfg(not(feature = "postgres"))]
pub fn server_environment(_config: &Config) -> Result<Option<Vec<(&'static str, String)>>, StartError> {
    Ok(None)
}

#[cfg(not(feature = "postgres"))]
async fn create_database(_config: &Config, _name: &str) -> Result<String, StartError> {
    Err(super::store::feature_missing("store.kind", "postgres"))
}

#[cfg(not(feature = "postgres"))]
async fn drop_database(_config: &Config, _name: &str) -> Result<(), StartError> {
    Ok(())
}

#[cfg(not(feature = "redis"))]
async fn delete_keys(_config: &Config) -> Result<(), StartError> {
    Ok(())
}

#[cfg(not(feature = "kafka"))]
async fn delete_topics(_config: &Config) -> Result<(), StartError> {
    Ok(())
}
