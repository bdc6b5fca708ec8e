//! `adopt`: publishes the rows of another service's table, or stops publishing them.
use super::start_error::StartError;
use crate::config::{Config, StoreKind};

/// Mapping of the columns of a table to the events that its rows become; see the options of `posthaste adopt`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableAdoption {
    /// The table, with its schema where the search path does not have it.
    pub table: String,
    /// The topic of an event, with `${routedByValue}` for the value of `route`.
    pub topic: String,
    /// Column with the id of the event.
    pub id: String,
    /// Column with the key of the record.
    pub key: String,
    /// Column with the type of the event.
    pub event_type: String,
    /// Column whose value selects the topic.
    pub route: String,
    /// Column with the value of the record.
    pub payload: String,
    /// Columns that become headers, each with the header's name.
    pub headers: Vec<(String, String)>,
    /// Media type of the values; `None` follows from the column.
    pub content_type: Option<String>,
}

/// The action on a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdoptMode {
    /// Only the statements are returned.
    DryRun,
    /// Rows that are inserted from now on are published.
    Adopt,
    /// Rows are no longer published.
    Release,
}

/// Adopts or releases a table of the database, and returns the statements that did it.
///
/// # Errors
/// The store is not PostgreSQL, it cannot be reached, or the table cannot be adopted as described.
pub async fn adopt_table(config: &Config, adoption: TableAdoption, mode: AdoptMode) -> Result<Vec<String>, StartError> {
    check_store(config)?;
    run(config, adoption, mode).await
}

/// The warning of `adopt`: in a partitioned table a row must never move between partitions. `None` for every other table.
///
/// # Errors
/// The store is not PostgreSQL, or it cannot be reached.
pub async fn adoption_warning(config: &Config, table: &str) -> Result<Option<String>, StartError> {
    let warning = || {
        format!(
            "{table} is partitioned: a row that an UPDATE moves to another partition is inserted there, and is published again once its event \
             is past outbox.retention; delete rows or detach partitions instead"
        )
    };
    check_store(config)?;
    Ok(rows_can_change_partition(config, table).await?.then(warning))
}

fn check_store(config: &Config) -> Result<(), StartError> {
    if config.store.kind == StoreKind::Postgres {
        return Ok(());
    }
    let message = "a table is adopted in PostgreSQL only: set store.kind = \"postgres\" and store.url to its database";
    Err(StartError::Config(message.into()))
}

#[cfg(feature = "postgres")]
async fn rows_can_change_partition(config: &Config, table: &str) -> Result<bool, StartError> {
    let options = super::options::postgres_for_operator(config);
    postgres::rows_can_change_partition(&options, table).await.map_err(from_adopt_error)
}

#[cfg(not(feature = "postgres"))]
async fn rows_can_change_partition(_config: &Config, _table: &str) -> Result<bool, StartError> {
    Err(super::store::feature_missing("store.kind", "postgres"))
}

#[cfg(feature = "postgres")]
fn from_adopt_error(error: postgres::AdoptError) -> StartError {
    match error {
        postgres::AdoptError::Open(error) => super::store::from_postgres_error(error),
        other => StartError::Store(other.to_string()),
    }
}

#[cfg(feature = "postgres")]
async fn run(config: &Config, adoption: TableAdoption, mode: AdoptMode) -> Result<Vec<String>, StartError> {
    let options = super::options::postgres_for_operator(config);
    let TableAdoption { table, topic, id, key, event_type, route, payload, headers, content_type } = adoption;
    let adoption = postgres::AdoptedTable { table, topic, id, key, event_type, route, payload, headers, content_type };
    let result = match mode {
        AdoptMode::DryRun => postgres::adoption_statements(&options, &adoption).await,
        AdoptMode::Adopt => postgres::adopt(&options, &adoption).await,
        AdoptMode::Release => postgres::release_adopted(&options, &adoption.table).await,
    };
    result.map_err(from_adopt_error)
}

#[cfg(not(feature = "postgres"))]
async fn run(_config: &Config, _adoption: TableAdoption, _mode: AdoptMode) -> Result<Vec<String>, StartError> {
    Err(super::store::feature_missing("store.kind", "postgres"))
}
