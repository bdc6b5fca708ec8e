//! Data of the bench's own on the configured backends: a folder, a database, topics. Gone afterwards, whatever happened.
use tempfile::TempDir;

use super::StartError;
use crate::config::{BrokerKind, Config, StoreKind};

/// A configuration whose data nobody else uses.
pub struct Throwaway {
    /// As the given one, but on this data.
    pub config: Config,
    // Removed when dropped.
    _folder: TempDir,
    /// The configured place, beside which the database was made, and the database's name.
    database: Option<(Config, String)>,
}

impl Throwaway {
    /// Makes a folder, a database with the schema in it, and topics, as far as the configured backends need them.
    ///
    /// # Errors
    /// A backend cannot be reached or refuses; nothing is left then.
    pub async fn make(configured: &Config) -> Result<Self, StartError> {
        let folder = tempfile::tempdir().map_err(|error| StartError::Store(error.to_string()))?;
        let name = format!("bench_{:08x}", rand::random::<u32>());
        let mut config = configured.clone();
        (config.store.path, config.store.migrate) = (folder.path().to_owned(), true);
        // Behind the configured prefix: rights are often given by it.
        config.broker.topic_prefix = format!("{}posthaste-{name}.", configured.broker.topic_prefix);
        config.broker.create_topics = true;
        (config.auth.issuer, config.auth.audience) = (None, None);
        let mut made = Self { config, _folder: folder, database: None };
        if configured.store.kind == StoreKind::Postgres {
            let name = format!("posthaste_{name}");
            made.config.store.url = create_database(configured, &name).await?.into();
            made.database = Some((configured.clone(), name));
        }
        match super::fill::open(&made.config, "bench").await {
            Ok(opened) => opened.held.close().await,
            Err(error) => return made.remove().await.and(Err(error)),
        }
        // Opening it brought the schema up to date.
        match super::schema::provide_topics(&made.config).await {
            Ok(_) => Ok(made),
            Err(error) => made.remove().await.and(Err(error)),
        }
    }

    /// Removes all of it. What cannot be removed is named in the error.
    ///
    /// # Errors
    /// A backend cannot be reached or refuses.
    pub async fn remove(self) -> Result<(), StartError> {
        let topics = match self.config.broker.kind {
            BrokerKind::Kafka => delete_topics(&self.config).await,
            BrokerKind::Embedded | BrokerKind::None => Ok(()),
        };
        if let Some((configured, name)) = &self.database {
            drop_database(configured, name).await?;
        }
        topics
    }
}

/// What the configured store's server says of itself, as far as figures depend on it; nothing for the embedded one.
///
/// # Errors
/// It cannot be reached.
#[cfg(feature = "postgres")]
pub async fn server_settings(config: &Config) -> Result<Vec<(&'static str, String)>, StartError> {
    if config.store.kind != StoreKind::Postgres {
        return Ok(Vec::new());
    }
    postgres::throwaway::settings(&options(config)).await.map_err(super::store::of_postgres)
}

/// Variables under which PostgreSQL's own programs find the configured store; `None` where it is another one.
///
/// # Errors
/// Its URL cannot be used.
#[cfg(feature = "postgres")]
pub fn server_environment(config: &Config) -> Result<Option<Vec<(&'static str, String)>>, StartError> {
    if config.store.kind != StoreKind::Postgres {
        return Ok(None);
    }
    postgres::throwaway::environment(&options(config)).map(Some).map_err(super::store::of_postgres)
}

#[cfg(feature = "postgres")]
fn options(config: &Config) -> postgres::Options {
    let instance = ports::partitions::InstanceId("bench".into());
    super::options::postgres(config, &instance, &telemetry::Metrics::new())
}

#[cfg(feature = "postgres")]
async fn create_database(config: &Config, name: &str) -> Result<String, StartError> {
    postgres::throwaway::create_database(&options(config), name).await.map_err(super::store::of_postgres)
}

#[cfg(feature = "postgres")]
async fn drop_database(config: &Config, name: &str) -> Result<(), StartError> {
    let dropped = postgres::throwaway::drop_database(&options(config), name).await;
    dropped.map_err(|error| StartError::Store(format!("database {name} stays: {error}")))
}

#[cfg(feature = "kafka")]
async fn delete_topics(config: &Config) -> Result<(), StartError> {
    use memory::SystemClock;
    let instance = ports::partitions::InstanceId("bench".into());
    let clock: std::sync::Arc<dyn ports::clock::Clock> = std::sync::Arc::new(SystemClock::new());
    let options = super::options::kafka(config, &instance, &"bench".into(), &clock);
    let deleted = kafka::throwaway::delete_topics(&options).await;
    let prefix = &config.broker.topic_prefix;
    deleted.map_err(|error| StartError::Broker(format!("topics that begin with {prefix} stay: {error}")))
}

/// Without the adapter there is nothing to ask.
///
/// # Errors
/// None.
#[cfg(not(feature = "postgres"))]
pub async fn server_settings(_config: &Config) -> Result<Vec<(&'static str, String)>, StartError> {
    Ok(Vec::new())
}

/// Without the adapter there is nothing to find.
///
/// # Errors
/// None.
#[cfg(not(feature = "postgres"))]
pub fn server_environment(_config: &Config) -> Result<Option<Vec<(&'static str, String)>>, StartError> {
    Ok(None)
}

#[cfg(not(feature = "postgres"))]
async fn create_database(_config: &Config, _name: &str) -> Result<String, StartError> {
    Err(super::store::not_built("store.kind", "postgres"))
}

#[cfg(not(feature = "postgres"))]
async fn drop_database(_config: &Config, _name: &str) -> Result<(), StartError> {
    Ok(())
}

#[cfg(not(feature = "kafka"))]
async fn delete_topics(_config: &Config) -> Result<(), StartError> {
    Ok(())
}
