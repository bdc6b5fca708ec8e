//! Whether rows of a table can move between partitions. PostgreSQL moves a row by a DELETE and an INSERT, and fires the triggers of both.
use std::sync::Arc;

use tokio_postgres::types::Type;

use crate::connection::connector::Connector;
use crate::publish::adopt_error::AdoptError;
use crate::store::options::Options;

/// Whether the table is partitioned, or a partition: then an UPDATE of its partition key can insert a row again, which publishes it again once the
/// event is past its retention. False for a table that does not exist.
///
/// # Errors
/// Fails as a connection or a query does.
pub async fn rows_can_change_partition(options: &Options, table: &str) -> Result<bool, AdoptError> {
    let connection = Connector::new(Arc::new(options.clone()))?.connect("adopt").await?;
    let text = "SELECT relkind = 'p' OR relispartition FROM pg_class WHERE oid = to_regclass($1)";
    let found = connection.client.query_typed_opt(text, &[(&table, Type::TEXT)]).await?;
    Ok(found.map(|row| row.try_get(0)).transpose()?.unwrap_or_default())
}
