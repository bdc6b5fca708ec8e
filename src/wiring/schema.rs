//! The store's schema and the broker's topics, brought up to date by hand.
use domain::Timestamp;

use super::StartError;
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

/// Every step, oldest first. `None` for a store that migrates itself whenever it is opened.
///
/// # Errors
/// The store cannot be reached, or is not one of ours.
pub async fn migrations(config: &Config) -> Result<Option<Vec<Migration>>, StartError> {
    schema(config, false).await
}

/// Applies what is missing and makes the topics that are missing. Answers the steps that were applied; `None` as in [`migrations`].
///
/// # Errors
/// As [`migrations`]; the broker cannot be reached, or may not be given topics. A step that fails leaves nothing of itself behind.
pub async fn migrate(config: &Config) -> Result<Option<Vec<Migration>>, StartError> {
    let done = schema(config, true).await?;
    if config.broker_kind == BrokerKind::Kafka && config.broker_create_topics {
        topics(config).await?;
    }
    Ok(done)
}

#[cfg(feature = "postgres")]
async fn schema(config: &Config, apply: bool) -> Result<Option<Vec<Migration>>, StartError> {
    if config.store_kind != StoreKind::Postgres {
        return Ok(None);
    }
    let options = super::options::postgres_beside(config);
    let steps = if apply { postgres::migrate(&options).await } else { postgres::status(&options).await };
    let steps = steps.map_err(super::store::of_postgres)?;
    let step =
        |step: postgres::Migration| Migration { version: step.version, name: step.name, applied_at: step.applied_at };
    Ok(Some(steps.into_iter().map(step).collect()))
}

#[cfg(not(feature = "postgres"))]
async fn schema(config: &Config, _apply: bool) -> Result<Option<Vec<Migration>>, StartError> {
    match config.store_kind {
        StoreKind::Postgres => Err(super::store::not_built("store.kind", "postgres")),
        StoreKind::Embedded | StoreKind::Redis => Ok(None),
    }
}

#[cfg(feature = "kafka")]
async fn topics(config: &Config) -> Result<(), StartError> {
    let installation = super::beside::installation(config).await?;
    let kafka = super::beside::kafka(config, &installation, config.broker_create_topics)?;
    kafka.ensure_topics(&[]).await.map_err(|error| StartError::Broker(format!("topics: {error}")))
}

#[cfg(not(feature = "kafka"))]
async fn topics(_config: &Config) -> Result<(), StartError> {
    Err(super::store::not_built("broker.kind", "kafka"))
}
