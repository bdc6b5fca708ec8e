//! The commands `posthaste migrate status` and `posthaste migrate up`: the schema's versions without opening the store.
use std::sync::Arc;

use crate::connection::connector::Connector;
use crate::connection::open_error::PostgresOpenError;
use crate::schema::archive_days;
use crate::schema::migrations::{self, MigrationStatus};
use crate::store::options::Options;

/// Lists the migrations that the database has applied or lacks, oldest first. Changes nothing.
///
/// # Errors
/// Fails as [`crate::Postgres::open`] does.
pub async fn migration_status(options: &Options) -> Result<Vec<MigrationStatus>, PostgresOpenError> {
    let connector = Connector::new(Arc::new(options.clone()))?;
    let connection = connector.connect("migrate").await?;
    migrations::status(&connection.client, connector.location()).await
}

/// Applies the missing migrations and returns them. If two processes migrate at once, the second waits and then finds nothing missing.
///
/// # Errors
/// As [`crate::Postgres::open`]; a migration that fails is rolled back as a whole.
pub async fn migrate(options: &Options) -> Result<Vec<MigrationStatus>, PostgresOpenError> {
    let connector = Connector::new(Arc::new(options.clone()))?;
    let connection = connector.connect("migrate").await?;
    let applied = migrations::apply(&connection.client, connector.location(), options.partitions).await?;
    archive_days::create(&connection.client, options.days_ahead)
        .await
        .map_err(|error| PostgresOpenError::from_client(connector.location(), &error))?;
    // The time of each is that of the database.
    let recorded = migrations::status(&connection.client, connector.location()).await?.into_iter();
    let is_applied = |row: &MigrationStatus| applied.iter().any(|migration| migration.version == row.version);
    Ok(recorded.filter(is_applied).collect())
}
