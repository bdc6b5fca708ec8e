//! The store's schema and the broker's topics, brought up to date by hand.
use std::path::PathBuf;

use domain::Timestamp;
use embedded::Embedded;

use super::start_error::StartError;
use crate::config::{BrokerKind, Config, StoreKind};

/// One step of the schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Migration {
    /// Its number.
    pub version: u32,
    /// Its name.
    pub name: String,
    /// When it was applied; `None` while it is pending.
    pub applied_at: Option<Timestamp>,
}

/// How the configured store's schema stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Schema {
    /// Brought up to date by hand, or by a service that may: its steps, oldest first.
    Steps(Vec<Migration>),
    /// Brought up to date by the service whenever it opens the file.
    File {
        /// The folder.
        folder: PathBuf,
        /// Its version; `None` where there is no store yet.
        found: Option<u32>,
        /// The latest that this program knows.
        known: u32,
    },
    /// There is none: the store is in Redis. An installation has a name and a number of partitions, and that is all.
    Keys {
        /// Whether there was an installation.
        installed: bool,
        /// Whether it was made now.
        made: bool,
    },
}

/// Looks how it stands: every step, where it has steps. Changes nothing.
///
/// # Errors
/// The store cannot be reached, or is not one of ours.
pub async fn migrations(config: &Config) -> Result<Schema, StartError> {
    match config.store.kind {
        StoreKind::Embedded => file(config),
        StoreKind::Postgres => steps(config, false).await,
        StoreKind::Redis => Ok(Schema::Keys { installed: installed(config).await?, made: false }),
    }
}

/// Applies the steps that are missing and answers those; makes the installation where it is in Redis and not there yet, as a service's
/// first start does. An embedded store is left to its service.
///
/// # Errors
/// As [`migrations`]. A step that fails leaves nothing of itself behind.
pub async fn migrate(config: &Config) -> Result<Schema, StartError> {
    match config.store.kind {
        StoreKind::Embedded => file(config),
        StoreKind::Postgres => steps(config, true).await,
        StoreKind::Redis => {
            let installed = installed(config).await?;
            if !installed {
                install(config).await?;
            }
            Ok(Schema::Keys { installed, made: !installed })
        }
    }
}

/// Makes the broker's topics that are missing, and answers their names; none where the configuration makes no topics, or where the broker
/// is the embedded one, whose service makes them.
///
/// # Errors
/// The broker cannot be reached, or may not be given topics; the store cannot be asked for the installation's name.
pub async fn provide_topics(config: &Config) -> Result<Vec<String>, StartError> {
    match config.broker.kind {
        BrokerKind::Kafka if config.broker.create_topics => topics(config).await,
        BrokerKind::Kafka | BrokerKind::Embedded | BrokerKind::None => Ok(Vec::new()),
    }
}

fn file(config: &Config) -> Result<Schema, StartError> {
    let schema = Embedded::schema(&config.store.path).map_err(|error| StartError::Store(error.to_string()));
    schema.map(|(found, known)| Schema::File { folder: config.store.path.clone(), found, known })
}

#[cfg(feature = "postgres")]
async fn steps(config: &Config, apply: bool) -> Result<Schema, StartError> {
    let options = super::options::postgres_beside(config);
    let steps = if apply { postgres::migrate(&options).await } else { postgres::migration_status(&options).await };
    let steps = steps.map_err(super::store::of_postgres)?;
    let step = |step: postgres::MigrationStatus| Migration {
        version: step.version,
        name: step.name,
        applied_at: step.applied_at,
    };
    Ok(Schema::Steps(steps.into_iter().map(step).collect()))
}

#[cfg(not(feature = "postgres"))]
async fn steps(_config: &Config, _apply: bool) -> Result<Schema, StartError> {
    Err(super::store::not_built("store.kind", "postgres"))
}

#[cfg(feature = "redis")]
async fn installed(config: &Config) -> Result<bool, StartError> {
    let opened = Box::pin(redis::RedisStore::open_for_operator(super::options::redis_beside(config))).await;
    match opened {
        Ok(_) => Ok(true),
        Err(redis::StoreOpenError::NotInstalled) => Ok(false),
        Err(error) => Err(super::store::of_redis(error)),
    }
}

#[cfg(feature = "redis")]
async fn install(config: &Config) -> Result<(), StartError> {
    // Opening the store with an unused instance id creates the installation.
    let opened = Box::pin(super::store::open_once(config, &super::options::operator().0)).await?;
    opened.held.close().await;
    Ok(())
}

#[cfg(not(feature = "redis"))]
async fn install(_config: &Config) -> Result<(), StartError> {
    Err(super::store::not_built("store.kind", "redis"))
}

#[cfg(not(feature = "redis"))]
async fn installed(_config: &Config) -> Result<bool, StartError> {
    Err(super::store::not_built("store.kind", "redis"))
}

#[cfg(feature = "kafka")]
async fn topics(config: &Config) -> Result<Vec<String>, StartError> {
    let told = |error: ports::Error| StartError::Broker(format!("topics: {error}"));
    let installation = super::beside::installation(config).await?;
    // Looked for by a client that makes none: the other one begins with that when it first reaches the broker.
    let missing = missing(&super::beside::kafka(config, &installation, false)?).await.map_err(told)?;
    let kafka = super::beside::kafka(config, &installation, true)?;
    kafka.ensure_topics(&[]).await.map_err(told)?;
    Ok(missing)
}

/// Which of the installation's topics are not there.
#[cfg(feature = "kafka")]
async fn missing(kafka: &kafka::Kafka) -> Result<Vec<String>, ports::Error> {
    use ports::broker::topics::TopicReader;
    let options = kafka.options();
    let mut missing = Vec::new();
    for name in options.event_topics().into_iter().chain([options.watermark_topic()]) {
        match kafka.read(&name, 0, 0, 0).await {
            Err(ports::Error::Rejected(_)) => missing.push(name),
            Err(error @ ports::Error::Unreachable(_)) => return Err(error),
            // What may not be read is there, or making it says what is wrong.
            Ok(_) | Err(_) => {}
        }
    }
    Ok(missing)
}

#[cfg(not(feature = "kafka"))]
async fn topics(_config: &Config) -> Result<Vec<String>, StartError> {
    Err(super::store::not_built("broker.kind", "kafka"))
}
