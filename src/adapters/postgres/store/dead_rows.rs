//! Dead rows of the outbox tables that change most, as the server's statistics estimate them.
use std::time::Duration;

use tokio_postgres::Row;

use crate::connection::session::PooledSession;
use crate::connection::sql_value::get;
use crate::connection::statement_error::StatementResult;

/// The rows of one table, estimated by PostgreSQL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadRows {
    /// Name of the table.
    pub table: String,
    /// Rows that VACUUM has not removed.
    pub dead: u64,
    /// Rows that statements see.
    pub live: u64,
    /// Time since the last VACUUM of the table; `None` if there was none since the statistics were reset.
    pub since_vacuum: Option<Duration>,
}

const DEAD_ROWS: &str = "SELECT relname::text, n_dead_tup, n_live_tup,
       extract(epoch FROM now() - greatest(last_autovacuum, last_vacuum))::float8
     FROM pg_stat_user_tables WHERE relid IN (to_regclass('outbox'), to_regclass('outbox_waiting'), to_regclass('outbox_lease'),
       to_regclass('outbox_sequence')) ORDER BY relname";

/// Reads the statistics of the tables.
pub(crate) async fn dead_rows(session: &PooledSession) -> StatementResult<Vec<DeadRows>> {
    let table = |row: &Row| {
        let age: Option<f64> = get(row, 3)?;
        Ok(DeadRows {
            table: get(row, 0)?,
            dead: get::<i64>(row, 1)?.unsigned_abs(),
            live: get::<i64>(row, 2)?.unsigned_abs(),
            since_vacuum: age.map(|age| Duration::try_from_secs_f64(age).unwrap_or_default()),
        })
    };
    session.query(DEAD_ROWS, &[]).await?.iter().map(table).collect()
}
