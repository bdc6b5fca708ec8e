//! The server's report for `posthaste doctor`: version, clock, durability, connections, missing indexes, and what holds back VACUUM.
use std::sync::Arc;
use std::time::Duration;

use domain::Timestamp;
use ports::Error;
use tokio::time::Instant;
use tokio_postgres::types::Type;

use crate::connection::connector::Connector;
use crate::connection::open_error::PostgresOpenError;
use crate::connection::sql_value::{get, get_time};
use crate::connection::statement_error::{StatementResult, broken};
use crate::store::context::StoreContext;
use crate::store::dead_rows::{DeadRows, dead_rows};
use crate::store::oldest_transaction;
use crate::store::options::Options;
use crate::store::postgres::Postgres;
use crate::store::probe;

/// The state of the server that `posthaste doctor` checks.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerReport {
    /// The server's version, as `server_version` shows it.
    pub version: String,
    /// The encoding of the database. Only UTF8 can be installed into; earlier versions did not check it.
    pub encoding: String,
    /// The server's clock while it ran the statement.
    pub now: Timestamp,
    /// Time from sending the statement to its reply.
    pub latency: Duration,
    /// Settings that are off and must be on, as a session has them that sets nothing of its own.
    pub weak_settings: Vec<WeakSetting>,
    /// Age of the oldest transaction of a client in any database of the server, prepared ones included, that still sees old rows or has written,
    /// so that VACUUM cannot remove dead outbox rows. Standbys are not examined.
    pub oldest_transaction: Option<Duration>,
    /// The tables of the outbox that change most.
    pub dead_rows: Vec<DeadRows>,
    /// Replication slots that no one reads from.
    pub idle_slots: Vec<IdleSlot>,
    /// Indexes of the schema that do not exist or are not valid.
    pub missing_indexes: Vec<String>,
    /// Number of connections in use.
    pub connections_used: u64,
    /// `max_connections` of the server.
    pub connections_max: u64,
    /// The standbys that replicate from this server.
    pub standbys: StandbyReport,
    /// The error of a write that needs disk space and is rolled back.
    pub write_error: Option<String>,
}

/// A replication slot without a reader. It keeps WAL until the disk is full, and rows that VACUUM could remove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdleSlot {
    /// Name of the slot.
    pub name: String,
    /// Bytes of WAL that it keeps.
    pub wal_bytes: u64,
}

/// A setting with which a commit that was acknowledged can be lost, or a page can be torn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeakSetting {
    /// Its name: `fsync`, `full_page_writes` or `synchronous_commit`.
    pub name: String,
    /// Where it is set, in PostgreSQL's words: `database`, `user`, `configuration file`, …
    pub source: String,
}

/// The physical standbys of a server. Logical subscribers and base backups do not count: no service fails over to them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StandbyReport {
    /// Names of those that may lack acknowledged commits.
    pub asynchronous: Vec<String>,
    /// Number of those that a commit waits for, now or when another one fails.
    pub synchronous: u64,
    /// Number of those whose state the role may not see.
    pub hidden: u64,
}

/// Every index of the migrations that no constraint creates.
const INDEXES: [&str; 11] = [
    "orders_by_owner",
    "orders_by_status",
    "idempotency_record_by_age",
    "idempotency_by_end",
    "outbox_event_by_key",
    "outbox_died",
    "outbox_waiting_by_id",
    "outbox_waiting_by_due",
    "outbox_archive_by_wide_span",
    "outbox_archive_by_first",
    "processed_events_by_age",
];

const REPORT: &str = concat!(
    "WITH standby AS (SELECT coalesce(nullif(r.application_name, ''), 'pid ' || r.pid) AS name, r.sync_state
       FROM pg_stat_replication r WHERE r.state IS DISTINCT FROM 'backup'
         AND NOT EXISTS (SELECT FROM pg_replication_slots s WHERE s.active_pid = r.pid AND s.slot_type = 'logical')),
     idle AS (SELECT slot_name, coalesce(pg_wal_lsn_diff(CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn()
         ELSE pg_current_wal_lsn() END, restart_lsn), 0)::int8 AS bytes
       FROM pg_replication_slots WHERE NOT active AND (restart_lsn IS NOT NULL OR xmin IS NOT NULL OR catalog_xmin IS NOT NULL))
     SELECT current_setting('server_version'), clock_timestamp(), ",
    oldest_transaction::age!(),
    ",
     (SELECT count(*) FROM pg_stat_activity), current_setting('max_connections')::int8,
     ARRAY (SELECT name FROM standby WHERE sync_state = 'async' ORDER BY name),
     (SELECT count(*) FROM standby WHERE sync_state <> 'async'), (SELECT count(*) FROM standby WHERE sync_state IS NULL),
     ARRAY (SELECT slot_name::text FROM idle ORDER BY slot_name), ARRAY (SELECT bytes FROM idle ORDER BY slot_name),
     ARRAY (SELECT name FROM unnest($1::text[]) name WHERE NOT EXISTS (SELECT FROM pg_index i
       WHERE i.indexrelid = to_regclass(quote_ident(name)) AND i.indisvalid) ORDER BY name),
     current_setting('server_encoding')"
);

/// The session of this statement sets nothing itself, so that it has what other programs get: this program's own sessions turn
/// `synchronous_commit` on.
const WEAK_SETTINGS: &str = "SELECT name, source FROM pg_settings
     WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit') AND setting = 'off' ORDER BY name";

impl Postgres {
    /// Reads the server's state. Changes nothing: its only write is rolled back.
    ///
    /// # Errors
    /// [`Error::Unreachable`] or [`Error::Overloaded`] if the server does not reply.
    pub async fn server_report(&self) -> Result<ServerReport, Error> {
        let context = self.context();
        let weak = weak_settings(&context.options).await;
        let weak_settings = weak.map_err(|error| Error::Unreachable(error.to_string()))?;
        let mut report = self.run("server_report", async move { report(&context, weak_settings).await }).await?;
        let context = self.context();
        let written = self.run("write", async move { probe::allocate(context.service_session().await?).await });
        report.write_error = written.await.err().map(|error| error.to_string());
        Ok(report)
    }
}

/// Reads the settings over a connection of its own, without the settings of this program's sessions.
async fn weak_settings(options: &Options) -> Result<Vec<WeakSetting>, PostgresOpenError> {
    let connector = Connector::new(Arc::new(Options { pooler: true, ..options.clone() }))?;
    let connection = connector.connect("doctor").await?;
    let rows = connection.client.query_typed(WEAK_SETTINGS, &[]).await;
    let rows = rows.map_err(|error| PostgresOpenError::from_client(connector.location(), &error))?;
    Ok(rows.iter().map(|row| WeakSetting { name: row.get(0), source: row.get(1) }).collect())
}

async fn report(context: &StoreContext, weak_settings: Vec<WeakSetting>) -> StatementResult<ServerReport> {
    let session = context.service_session().await?;
    // Opens the connection, so that the latency below is the statement's alone.
    session.query("SELECT 1", &[]).await?;
    let started = Instant::now();
    let rows = session.query(REPORT, &[(&&INDEXES[..], Type::TEXT_ARRAY)]).await?;
    let latency = started.elapsed();
    let dead_rows = dead_rows(&session).await?;
    let row = rows.first().ok_or_else(|| broken("the report returned no row"))?;
    let age: Option<f64> = get(row, 2)?;
    let (slots, bytes): (Vec<String>, Vec<i64>) = (get(row, 8)?, get(row, 9)?);
    let idle_slot = |(name, bytes): (String, i64)| IdleSlot { name, wal_bytes: bytes.unsigned_abs() };
    Ok(ServerReport {
        version: get(row, 0)?,
        now: get_time(row, 1)?,
        latency,
        weak_settings,
        oldest_transaction: age.map(|age| Duration::try_from_secs_f64(age).unwrap_or_default()),
        dead_rows,
        idle_slots: slots.into_iter().zip(bytes).map(idle_slot).collect(),
        missing_indexes: get(row, 10)?,
        encoding: get(row, 11)?,
        connections_used: get::<i64>(row, 3)?.unsigned_abs(),
        connections_max: get::<i64>(row, 4)?.unsigned_abs(),
        standbys: StandbyReport {
            asynchronous: get(row, 5)?,
            synchronous: get::<i64>(row, 6)?.unsigned_abs(),
            hidden: get::<i64>(row, 7)?.unsigned_abs(),
        },
        write_error: None,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn indexes_are_those_that_the_migrations_create() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../migrations/postgres");
        let (mut created, mut dropped) = (BTreeSet::new(), BTreeSet::new());
        for file in std::fs::read_dir(folder).unwrap() {
            let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
            let names = |statement: &str| -> Vec<String> {
                let ends_name = |character: char| character.is_whitespace() || character == ';';
                text.split(statement)
                    .skip(1)
                    .filter_map(|rest| rest.split(ends_name).next())
                    .map(str::to_owned)
                    .collect()
            };
            // An index without a name is that of one partition.
            created.extend(names("CREATE INDEX ").into_iter().filter(|name| name != "ON"));
            dropped.extend(names("DROP INDEX "));
            dropped.extend(names("ALTER INDEX "));
            let renames = text.lines().filter(|line| line.starts_with("ALTER INDEX "));
            created.extend(renames.flat_map(|line| line.trim_end_matches(';').rsplit(' ').next()).map(str::to_owned));
        }

        assert_eq!(&created - &dropped, INDEXES.iter().map(|name| (*name).to_owned()).collect());
    }
}
