//! The schema's migrations, forward only. Each runs in one transaction together with the row that records it.
use std::time::Duration;

use domain::Timestamp;
use tokio::time::Instant;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Row};

use crate::connection::open_error::PostgresOpenError;
use crate::connection::session::SYNTAX_SETTINGS;
use crate::connection::sql_value;
use crate::schema::migration_files::FILES;
use crate::schema::own_schema;
use crate::schema::table_wait::{self, RETRY_PAUSE, TABLE_WAIT, VACUUM_WAIT};

/// The key of the advisory lock under which one process at a time migrates: "phst" and a number.
const LOCK: i64 = 0x7068_7374_0001;

/// How often an operator is reminded of a migration that waits, and how often one waits until autovacuum is cancelled.
const REMINDER: Duration = Duration::from_secs(30);

/// A migration and whether it was applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigrationStatus {
    /// The number of the migration, from 1 on.
    pub version: u32,
    /// The name in its file's name.
    pub name: String,
    /// SHA-256 of its text as it was first released, in hexadecimal.
    pub checksum: String,
    /// When it was applied; `None` while it is pending.
    pub applied_at: Option<Timestamp>,
}

/// The migrations that the database has applied or this program contains, oldest first.
///
/// # Errors
/// [`PostgresOpenError::NewerSchema`] and [`PostgresOpenError::ChangedMigration`], and the errors of a connection.
pub(crate) async fn status(client: &Client, location: &str) -> Result<Vec<MigrationStatus>, PostgresOpenError> {
    let open_error = |error: tokio_postgres::Error| PostgresOpenError::from_client(location, &error);
    let known =
        client.query_typed("SELECT to_regclass('posthaste_migration') IS NOT NULL", &[]).await.map_err(open_error)?;
    let mut applied: Vec<MigrationStatus> = Vec::new();
    if known.first().is_some_and(|row| row.get(0)) {
        let text = "SELECT version, name, checksum, applied_at FROM posthaste_migration ORDER BY version";
        let rows = client.query_typed(text, &[]).await.map_err(open_error)?;
        applied = rows.iter().map(read).collect();
    }
    let latest = FILES.last().map_or(0, |file| file.version);
    if let Some(newer) = applied.last().filter(|last| last.version > latest) {
        return Err(PostgresOpenError::NewerSchema { location: location.into(), found: newer.version, known: latest });
    }
    for file in FILES {
        match applied.iter().find(|row| row.version == file.version) {
            Some(row) if row.checksum == file.checksum => {}
            Some(_) => {
                return Err(PostgresOpenError::ChangedMigration { location: location.into(), version: file.version });
            }
            None => applied.push(MigrationStatus {
                version: file.version,
                name: file.name.into(),
                checksum: file.checksum.into(),
                applied_at: None,
            }),
        }
    }
    Ok(applied)
}

/// Applies the pending migrations under a lock, one transaction each, and returns them. If two processes migrate at once, the second
/// finds nothing pending. A migration that needs a table in use waits for it without stopping others for longer than [`TABLE_WAIT`].
pub(crate) async fn apply(
    client: &Client,
    location: &str,
    partitions: u32,
) -> Result<Vec<MigrationStatus>, PostgresOpenError> {
    let (mut done, mut waiting) = (Vec::new(), TableWait::default());
    loop {
        let pending = status(client, location).await?.into_iter().find(|migration| migration.applied_at.is_none());
        let Some(pending) = pending else { return Ok(done) };
        if pending.version == 1 {
            require_utf8(client, location).await?;
        }
        match apply_one(client, &pending, partitions, waiting.next_timeout).await {
            Ok(true) => done.push(pending),
            Ok(false) => {}
            Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => {
                client
                    .batch_execute("ROLLBACK")
                    .await
                    .map_err(|error| PostgresOpenError::from_client(location, &error))?;
                let vacuumed = table_wait::own_tables_are_vacuumed(client).await;
                waiting.report(&pending, vacuumed.map_err(|error| PostgresOpenError::from_client(location, &error))?);
                tokio::time::sleep(RETRY_PAUSE).await;
            }
            Err(error) => {
                // The connection closes after this, so an error of the rollback does not matter.
                let _ = client.batch_execute("ROLLBACK").await;
                return Err(PostgresOpenError::from_client(location, &error));
            }
        }
    }
}

/// Reports a migration that waits for a table, at once and then every [`REMINDER`]; then its next attempt also waits long enough for PostgreSQL to
/// cancel an autovacuum.
struct TableWait {
    reported: Option<(u32, Instant)>,
    /// The statement that sets how long the next attempt waits for a table.
    next_timeout: &'static str,
}

impl Default for TableWait {
    fn default() -> Self {
        Self { reported: None, next_timeout: TABLE_WAIT }
    }
}

impl TableWait {
    fn report(&mut self, pending: &MigrationStatus, vacuumed: bool) {
        let now = Instant::now();
        self.next_timeout = TABLE_WAIT;
        if self
            .reported
            .is_some_and(|(version, reported_at)| version == pending.version && now - reported_at < REMINDER)
        {
            return;
        }
        self.reported = Some((pending.version, now));
        if vacuumed {
            self.next_timeout = VACUUM_WAIT;
        }
        tracing::warn!(
            event = "migration_waits",
            version = pending.version,
            name = pending.name,
            vacuumed,
            "a migration needs a table that a transaction or VACUUM has locked; it is tried again until the lock is released"
        );
    }
}

/// Applies one migration; returns false if another process applied it first. `table_wait` sets how long it waits for a table in use.
async fn apply_one(
    client: &Client,
    pending: &MigrationStatus,
    partitions: u32,
    table_wait: &str,
) -> Result<bool, tokio_postgres::Error> {
    // The lock belongs to the transaction, so it works behind a pooler too. It may wait for another process's long migration.
    let begin = format!(
        "BEGIN ISOLATION LEVEL READ COMMITTED; {SYNTAX_SETTINGS}; SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0;
         SET LOCAL idle_in_transaction_session_timeout = 0"
    );
    client.batch_execute(&begin).await?;
    client.query_typed("SELECT pg_advisory_xact_lock($1)", &[(&LOCK, Type::INT8)]).await?;
    client.batch_execute(table_wait).await?;
    client.batch_execute(&own_schema::prepend_to_search_path("posthaste_migration")).await?;
    client
        .batch_execute(
            "CREATE TABLE IF NOT EXISTS posthaste_migration (version integer PRIMARY KEY, name text NOT NULL, checksum text NOT NULL,
               applied_at timestamptz NOT NULL DEFAULT clock_timestamp())",
        )
        .await?;
    let version = pending.version as i32;
    let recorded = client
        .query_typed(
            "INSERT INTO posthaste_migration (version, name, checksum) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING RETURNING 1",
            &[(&version, Type::INT4), (&pending.name, Type::TEXT), (&pending.checksum, Type::TEXT)],
        )
        .await?;
    if recorded.is_empty() {
        client.batch_execute("ROLLBACK").await?;
        return Ok(false);
    }
    if let Some(file) = FILES.iter().find(|file| file.version == pending.version) {
        client.batch_execute(file.text).await?;
    }
    if pending.version == 1 {
        install(client, partitions).await?;
    }
    client.batch_execute("COMMIT").await?;
    Ok(true)
}

/// Refuses to install into a database of another encoding than UTF-8: it accepts texts that the server cannot send to a client that reads UTF-8, so
/// that one such event would stop its partition.
async fn require_utf8(client: &Client, location: &str) -> Result<(), PostgresOpenError> {
    let open_error = |error: tokio_postgres::Error| PostgresOpenError::from_client(location, &error);
    let rows = client.query_typed("SELECT current_setting('server_encoding')", &[]).await.map_err(open_error)?;
    let encoding: String = rows.first().map_or_else(|| Ok(String::new()), |row| row.try_get(0)).map_err(open_error)?;
    if encoding == "UTF8" { Ok(()) } else { Err(PostgresOpenError::NotUtf8 { location: location.into(), encoding }) }
}

/// Writes the number of partitions and their lease rows, which never change.
async fn install(client: &Client, partitions: u32) -> Result<(), tokio_postgres::Error> {
    let partitions = partitions.max(1) as i32;
    client.query_typed("INSERT INTO installation (partitions) VALUES ($1)", &[(&partitions, Type::INT4)]).await?;
    client
        .query_typed(
            "INSERT INTO outbox_lease (partition) SELECT * FROM generate_series(0, $1 - 1)",
            &[(&partitions, Type::INT4)],
        )
        .await?;
    Ok(())
}

fn read(row: &Row) -> MigrationStatus {
    MigrationStatus {
        version: row.get::<_, i32>(0).unsigned_abs(),
        name: row.get(1),
        checksum: row.get(2),
        applied_at: Some(sql_value::timestamp(row.get(3))),
    }
}

/// The names of the pending migrations; `None` if there are none.
pub(crate) fn missing(migrations: &[MigrationStatus]) -> Option<String> {
    let names: Vec<String> = migrations
        .iter()
        .filter(|migration| migration.applied_at.is_none())
        .map(|migration| format!("V{}__{}", migration.version, migration.name))
        .collect();
    (!names.is_empty()).then(|| names.join(", "))
}
