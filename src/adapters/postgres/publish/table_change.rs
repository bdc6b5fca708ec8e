//! Changes the trigger of a table that is in use, without stopping the writers, and lists the transactions that use it.
use std::time::Duration;

use tokio::time::Instant;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error};

use crate::schema::migrations::{RETRY_PAUSE, TABLE_WAIT};

/// The transactions with a lock on a table or one of its partitions. Another role's start of a transaction may be hidden.
const USERS: &str = "SELECT DISTINCT coalesce(format('process %s', l.pid), 'a prepared transaction'),
       coalesce(format(', %s', nullif(a.application_name, '')), ''), extract(epoch FROM clock_timestamp() - a.xact_start)::int8
     FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
     WHERE l.locktype = 'relation' AND l.granted AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
       AND l.pid IS DISTINCT FROM pg_backend_pid()
       AND (l.relation = to_regclass($1) OR l.relation IN (SELECT relid FROM pg_partition_tree(to_regclass($1))))
     ORDER BY 3 DESC NULLS LAST LIMIT 5";

/// Runs the statements in one transaction. While another transaction uses the table it is rolled back, so that writers pass, and tried again until
/// the limit is reached.
pub(crate) async fn apply(client: &Client, statements: &[String], limit: Duration) -> Result<(), Error> {
    let text = format!("BEGIN; {TABLE_WAIT}; {}; COMMIT", statements.join("; "));
    let begun = Instant::now();
    loop {
        match client.batch_execute(&text).await {
            Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => {
                client.batch_execute("ROLLBACK").await?;
                if begun.elapsed() >= limit {
                    return Err(error);
                }
                tokio::time::sleep(RETRY_PAUSE).await;
            }
            result => return result,
        }
    }
}

/// The transactions that use a table, the oldest first, as a text for operators.
pub(crate) async fn users(client: &Client, table: &str) -> Result<String, Error> {
    let rows = client.query_typed(USERS, &[(&table, Type::TEXT)]).await?;
    let mut users = Vec::new();
    for row in rows {
        let (process, application): (String, String) = (row.try_get(0)?, row.try_get(1)?);
        let age: Option<i64> = row.try_get(2)?;
        let age = age.map(|age| format!(", in a transaction of {age} s")).unwrap_or_default();
        users.push(format!("{process}{application}{age}"));
    }
    Ok(if users.is_empty() { "transactions that have ended meanwhile".into() } else { users.join("; ") })
}
