//! Tables that an earlier version adopted, and of which migration V16 could not rewrite the trigger's function.
use std::sync::Arc;

use tokio_postgres::Row;

use crate::connection::connector::Connector;
use crate::connection::open_error::PostgresOpenError;
use crate::store::options::Options;

const TABLES: &str =
    "SELECT format('%I.%I', n.nspname, c.relname), pg_get_userbyid(t.owner)::text FROM outbox_tables_without_type_check() t
     JOIN pg_class c ON c.oid = t.relation JOIN pg_namespace n ON n.oid = c.relnamespace ORDER BY 1, 2";

/// The adopted tables whose owner can run SQL as the role that adopted them, each with that role: the function of the trigger does not check the
/// types of the columns. [`crate::adopt`] corrects it.
///
/// # Errors
/// Fails as [`crate::Postgres::open`] does, and if the database lacks migration V16.
pub async fn tables_without_type_check(options: &Options) -> Result<Vec<(String, String)>, PostgresOpenError> {
    let connector = Connector::new(Arc::new(options.clone()))?;
    let connection = connector.connect("adopted").await?;
    let rows = connection.client.query_typed(TABLES, &[]).await;
    let rows = rows.map_err(|error| PostgresOpenError::from_client(connector.location(), &error))?;
    let table = |row: &Row| Ok((row.try_get(0)?, row.try_get(1)?));
    let tables: Result<_, tokio_postgres::Error> = rows.iter().map(table).collect();
    tables.map_err(|error| PostgresOpenError::from_client(connector.location(), &error))
}
