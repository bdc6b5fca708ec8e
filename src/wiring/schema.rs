//! `migrate`: reads the state of the store's schema, applies migrations and creates missing topics.
use std::path::PathBuf;

use domain::Timestamp;
use embedded::Embedded;

use super::start_error::StartError;
use crate::config::{BrokerKind, Config, StoreKind};

/// One migration of a PostgreSQL store's schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Migration {
    /// Number of the migration; they are applied in this order.
    pub version: u32,
    /// Short description, from the name of its file.
    pub name: String,
    /// When it was applied; `None` while it is pending.
    pub applied_at: Option<Timestamp>,
}

/// The state of the configured store's schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SchemaState {
    /// PostgreSQL: the migrations, oldest first. `migrate` applies them, or a service with `store.migrate`.
    Migrations(Vec<Migration>),
    /// The embedded store: each start of the service migrates its file.
    EmbeddedFile {
        /// The data folder, `store.path`.
        folder: PathBuf,
        /// The file's schema version; `None` while there is no store.
        version: Option<u32>,
        /// The newest version that this program supports.
        newest: u32,
    },
    /// Redis: it has no schema, only an installation with a name and a number of partitions.
    RedisInstallation(RedisInstallation),
}

/// The installation in a Redis store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RedisInstallation {
    /// There is none: [`migrate`] or the first start of a service creates it.
    Missing,
    /// It existed before the call.
    Existed,
    /// The call has created it.
    Created,
}

/// Reads the state of the schema. Changes nothing.
///
/// # Errors
/// The store cannot be reached, or belongs to another program.
pub async fn schema_state(config: &Config) -> Result<SchemaState, StartError> {
    match config.store.kind {
        StoreKind::Embedded => embedded_file(config),
        StoreKind::Postgres => list_migrations(config).await,
        StoreKind::Redis if is_installed(config).await? => {
            Ok(SchemaState::RedisInstallation(RedisInstallation::Existed))
        }
        StoreKind::Redis => Ok(SchemaState::RedisInstallation(RedisInstallation::Missing)),
    }
}

/// Applies the pending migrations of PostgreSQL and returns them. Creates the installation of a Redis store if there is none, as a service's
/// first start does. Leaves an embedded store to its service.
///
/// # Errors
/// As [`schema_state`]. A migration that fails is rolled back.
pub async fn migrate(config: &Config) -> Result<SchemaState, StartError> {
    match config.store.kind {
        StoreKind::Embedded => embedded_file(config),
        StoreKind::Postgres => apply_migrations(config).await,
        StoreKind::Redis if is_installed(config).await? => {
            Ok(SchemaState::RedisInstallation(RedisInstallation::Existed))
        }
        StoreKind::Redis => {
            install(config).await?;
            Ok(SchemaState::RedisInstallation(RedisInstallation::Created))
        }
    }
}

/// Creates Kafka's missing topics and returns their names. Does nothing without `broker.create_topics`, and for the embedded broker, whose
/// service creates them.
///
/// # Errors
/// The broker cannot be reached or refuses to create topics, or the store with the installation's name cannot be opened.
pub async fn create_missing_topics(config: &Config) -> Result<Vec<String>, StartError> {
    match config.broker.kind {
        BrokerKind::Kafka if config.broker.create_topics => create_kafka_topics(config).await,
        BrokerKind::Kafka | BrokerKind::Embedded | BrokerKind::None => Ok(Vec::new()),
    }
}

fn embedded_file(config: &Config) -> Result<SchemaState, StartError> {
    let schema = Embedded::schema_versions(&config.store.path).map_err(|error| StartError::Store(error.to_string()));
    schema.map(|(version, newest)| SchemaState::EmbeddedFile { folder: config.store.path.clone(), version, newest })
}

#[cfg(feature = "postgres")]
async fn list_migrations(config: &Config) -> Result<SchemaState, StartError> {
    let options = super::options::postgres_for_operator(config);
    postgres::migration_status(&options).await.map(migration_list).map_err(super::store::from_postgres_error)
}

#[cfg(feature = "postgres")]
async fn apply_migrations(config: &Config) -> Result<SchemaState, StartError> {
    let options = super::options::postgres_for_operator(config);
    postgres::migrate(&options).await.map(migration_list).map_err(super::store::from_postgres_error)
}

#[cfg(feature = "postgres")]
fn migration_list(migrations: Vec<postgres::MigrationStatus>) -> SchemaState {
    let migration = |status: postgres::MigrationStatus| Migration {
        version: status.version,
        name: status.name,
        applied_at: status.applied_at,
    };
    SchemaState::Migrations(migrations.into_iter().map(migration).collect())
}

#[cfg(not(feature = "postgres"))]
async fn list_migrations(_config: &Config) -> Result<SchemaState, StartError> {
    Err(super::store::feature_missing("store.kind", "postgres"))
}

#[cfg(not(feature = "postgres"))]
async fn apply_migrations(_config: &Config) -> Result<SchemaState, StartError> {
    Err(super::store::feature_missing("store.kind", "postgres"))
}

#[cfg(feature = "redis")]
async fn is_installed(config: &Config) -> Result<bool, StartError> {
    let opened = Box::pin(redis::RedisStore::open_for_operator(super::options::redis_store_for_operator(config))).await;
    match opened {
        Ok(_) => Ok(true),
        Err(redis::StoreOpenError::NotInstalled) => Ok(false),
        Err(error) => Err(super::store::from_redis_error(error)),
    }
}

#[cfg(feature = "redis")]
async fn install(config: &Config) -> Result<(), StartError> {
    // Opening the store with an unused instance id creates the installation.
    let opened = Box::pin(super::store::open_once(config, &super::options::operator_instance().0)).await?;
    opened.handles.close().await;
    Ok(())
}

#[cfg(not(feature = "redis"))]
async fn install(_config: &Config) -> Result<(), StartError> {
    Err(super::store::feature_missing("store.kind", "redis"))
}

#[cfg(not(feature = "redis"))]
async fn is_installed(_config: &Config) -> Result<bool, StartError> {
    Err(super::store::feature_missing("store.kind", "redis"))
}

#[cfg(feature = "kafka")]
async fn create_kafka_topics(config: &Config) -> Result<Vec<String>, StartError> {
    let map_err = |error: ports::Error| StartError::Broker(format!("topics: {error}"));
    let installation = super::operator_access::installation(config).await?;
    let kafka = super::operator_access::open_kafka(config, &installation, true)?;
    kafka.ensure_topics(&[]).await.map_err(map_err)?;
    Ok(kafka.created_topics())
}

#[cfg(not(feature = "kafka"))]
async fn create_kafka_topics(_config: &Config) -> Result<Vec<String>, StartError> {
    Err(super::store::feature_missing("broker.kind", "kafka"))
}
