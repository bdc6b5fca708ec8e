//! Changes the trigger of a table that is in use, without stopping the writers, and lists the transactions that use it.
use std::time::Duration;

use tokio::time::Instant;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error};

use crate::connection::session::SYNTAX_SETTINGS;
use crate::schema::table_wait::{RETRY_PAUSE, TABLE_WAIT, VACUUM_LOCK, VACUUM_WAIT};

/// The locks that other transactions hold on a table or one of its partitions.
const HELD: &str = "FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
     WHERE l.locktype = 'relation' AND l.granted AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
       AND l.pid IS DISTINCT FROM pg_backend_pid()
       AND (l.relation = to_regclass($1) OR l.relation IN (SELECT relid FROM pg_partition_tree(to_regclass($1))))";

/// Runs the statements, which change the trigger of this table, in one transaction. While another transaction uses the table it is rolled back, so
/// that writers pass, and tried again until the limit is reached. One of the attempts waits longer if autovacuum may be what uses the table.
pub(crate) async fn apply(client: &Client, table: &str, statements: &[String], limit: Duration) -> Result<(), Error> {
    let statements = statements.join("; ");
    let (started, mut wait, mut has_waited_for_vacuum) = (Instant::now(), TABLE_WAIT, false);
    loop {
        match client.batch_execute(&format!("BEGIN; {SYNTAX_SETTINGS}; {wait}; {statements}; COMMIT")).await {
            Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => {
                client.batch_execute("ROLLBACK").await?;
                if started.elapsed() >= limit {
                    return Err(error);
                }
                wait = TABLE_WAIT;
                if !has_waited_for_vacuum && is_vacuumed(client, table).await? {
                    (wait, has_waited_for_vacuum) = (VACUUM_WAIT, true);
                }
                tokio::time::sleep(RETRY_PAUSE).await;
            }
            result => return result,
        }
    }
}

/// Whether a vacuum works on the table. Other transactions may use it too: those of its writers have passed by now.
async fn is_vacuumed(client: &Client, table: &str) -> Result<bool, Error> {
    let text = format!("SELECT 1 {HELD} AND {VACUUM_LOCK} LIMIT 1");
    let held = client.query_typed(&text, &[(&table, Type::TEXT)]).await?;
    Ok(!held.is_empty())
}

/// The transactions that use a table, the oldest first, as a text for operators. Another role's start of a transaction may be hidden.
pub(crate) async fn users(client: &Client, table: &str) -> Result<String, Error> {
    let text = format!(
        "SELECT coalesce(format('process %s', l.pid), 'a prepared transaction'), coalesce(', ' || nullif(min(a.application_name), ''),
                CASE WHEN bool_and({VACUUM_LOCK}) THEN ', which is probably autovacuum' ELSE '' END),
                extract(epoch FROM clock_timestamp() - min(a.xact_start))::int8
           {HELD} GROUP BY l.pid ORDER BY 3 DESC NULLS LAST LIMIT 5"
    );
    let rows = client.query_typed(&text, &[(&table, Type::TEXT)]).await?;
    let mut users = Vec::new();
    for row in rows {
        let (process, application): (String, String) = (row.try_get(0)?, row.try_get(1)?);
        let age: Option<i64> = row.try_get(2)?;
        let age = age.map(|age| format!(", in a transaction of {age} s")).unwrap_or_default();
        users.push(format!("{process}{application}{age}"));
    }
    Ok(if users.is_empty() { "transactions that have ended meanwhile".into() } else { users.join("; ") })
}
