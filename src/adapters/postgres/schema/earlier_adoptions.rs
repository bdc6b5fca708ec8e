//! Tables that an earlier version adopted, and of which no migration has rewritten the trigger's function.
use std::sync::Arc;

use tokio_postgres::Row;

use crate::connection::connector::Connector;
use crate::connection::open_error::PostgresOpenError;
use crate::store::options::Options;

const WITHOUT_TYPE_CHECK: &str =
    "SELECT format('%I.%I', n.nspname, c.relname), pg_get_userbyid(t.owner)::text FROM outbox_tables_without_type_check() t
     JOIN pg_class c ON c.oid = t.relation JOIN pg_namespace n ON n.oid = c.relnamespace ORDER BY 1, 2";

const WITHOUT_ID_CHECK: &str =
    "SELECT DISTINCT format('%I.%I', n.nspname, c.relname), pg_get_userbyid(p.proowner)::text FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid
     JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_namespace n ON n.oid = c.relnamespace
     WHERE t.tgparentid = 0 AND p.prosecdef AND starts_with(p.proname::text, 'outbox_adopted_')
       AND p.pronamespace = (SELECT relnamespace FROM pg_class WHERE oid = to_regclass('installation'))
       AND position('outbox_key_group(' IN p.prosrc) > 0 AND position('outbox_publish_adopted(' IN p.prosrc) = 0 ORDER BY 1, 2";

/// A table that an earlier version adopted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EarlierAdoption {
    /// Schema and name of the table, quoted where SQL needs it.
    pub table: String,
    /// Role that adopted it, and owns the function of its trigger.
    pub role: String,
}

/// The adopted tables whose owner can run SQL as the role that adopted them: the function of the trigger does not check the types of the columns.
/// [`crate::adopt`] corrects it.
///
/// # Errors
/// Fails as [`crate::Postgres::open`] does, and if the database lacks migration V16.
pub async fn tables_without_type_check(options: &Options) -> Result<Vec<EarlierAdoption>, PostgresOpenError> {
    adopted_tables(options, WITHOUT_TYPE_CHECK).await
}

/// The adopted tables in which a row with the id of an earlier row is not published: the id is no UUID, and the function of the trigger does not
/// compare the events. [`crate::adopt`] corrects it.
///
/// # Errors
/// Fails as [`crate::Postgres::open`] does.
pub async fn tables_without_id_check(options: &Options) -> Result<Vec<EarlierAdoption>, PostgresOpenError> {
    adopted_tables(options, WITHOUT_ID_CHECK).await
}

async fn adopted_tables(options: &Options, text: &str) -> Result<Vec<EarlierAdoption>, PostgresOpenError> {
    let connector = Connector::new(Arc::new(options.clone()))?;
    let connection = connector.connect("adopted").await?;
    let rows = connection.client.query_typed(text, &[]).await;
    let rows = rows.map_err(|error| PostgresOpenError::from_client(connector.location(), &error))?;
    let adoption = |row: &Row| Ok(EarlierAdoption { table: row.try_get(0)?, role: row.try_get(1)? });
    let adoptions: Result<_, tokio_postgres::Error> = rows.iter().map(adoption).collect();
    adoptions.map_err(|error| PostgresOpenError::from_client(connector.location(), &error))
}
