//! The schema and its versions. Forward only; each step runs in one transaction together with the note that it was applied.
use domain::Timestamp;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Row};

use crate::open_error::OpenError;
use crate::value;

/// A step, as this program carries it.
struct Step {
    version: u32,
    name: &'static str,
    text: &'static str,
}

/// Every step, oldest first.
const STEPS: &[Step] = &[
    Step {
        version: 1,
        name: "orders_outbox_and_inbox",
        text: include_str!("../../../migrations/postgres/V1__orders_outbox_and_inbox.sql"),
    },
    Step {
        version: 2,
        name: "redriven_dead_letters",
        text: include_str!("../../../migrations/postgres/V2__redriven_dead_letters.sql"),
    },
];

/// Names the lock under which one process at a time migrates: "phst" and a number.
const LOCK: i64 = 0x7068_7374_0001;

/// A migration and whether it was applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Migration {
    /// Its number.
    pub version: u32,
    /// Its name.
    pub name: String,
    /// SHA-256 of its text, in hexadecimal.
    pub checksum: String,
    /// When it was applied; `None` while it is pending.
    pub applied_at: Option<Timestamp>,
}

/// Every migration this database has seen or this program carries, oldest first.
///
/// # Errors
/// [`OpenError::NewerSchema`] and [`OpenError::ChangedMigration`], besides all that a connection may meet.
pub(crate) async fn status(client: &Client, place: &str) -> Result<Vec<Migration>, OpenError> {
    let told = |error: tokio_postgres::Error| OpenError::of(place, &error);
    let known = client.query_typed("SELECT to_regclass('posthaste_migration') IS NOT NULL", &[]).await.map_err(told)?;
    let mut applied: Vec<Migration> = Vec::new();
    if known.first().is_some_and(|row| row.get(0)) {
        let text = "SELECT version, name, checksum, applied_at FROM posthaste_migration ORDER BY version";
        let rows = client.query_typed(text, &[]).await.map_err(told)?;
        applied = rows.iter().map(read).collect();
    }
    let latest = STEPS.last().map_or(0, |step| step.version);
    if let Some(newer) = applied.last().filter(|last| last.version > latest) {
        return Err(OpenError::NewerSchema { place: place.into(), found: newer.version, known: latest });
    }
    for step in STEPS {
        let checksum = checksum(client, step.text).await.map_err(told)?;
        match applied.iter().find(|seen| seen.version == step.version) {
            Some(seen) if seen.checksum == checksum => {}
            Some(_) => return Err(OpenError::ChangedMigration { place: place.into(), version: step.version }),
            None => {
                applied.push(Migration { version: step.version, name: step.name.into(), checksum, applied_at: None })
            }
        }
    }
    Ok(applied)
}

/// Applies what is pending, one transaction each, under a lock: of two that migrate at once the second finds all done.
/// Answers what it applied.
pub(crate) async fn migrate(client: &Client, place: &str, partitions: u32) -> Result<Vec<Migration>, OpenError> {
    let mut done = Vec::new();
    loop {
        let pending = status(client, place).await?.into_iter().find(|step| step.applied_at.is_none());
        let Some(pending) = pending else { return Ok(done) };
        match step(client, &pending, partitions).await {
            Ok(true) => done.push(pending),
            Ok(false) => {}
            Err(error) => {
                // The connection is dropped after this: what the rollback itself meets changes nothing any more.
                let _ = client.batch_execute("ROLLBACK").await;
                return Err(OpenError::of(place, &error));
            }
        }
    }
}

/// One step, unless somebody else was quicker.
async fn step(client: &Client, pending: &Migration, partitions: u32) -> Result<bool, tokio_postgres::Error> {
    // The lock belongs to the transaction, so it holds behind a pooler too. What waits for it may wait for somebody's long migration.
    client.batch_execute("BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0").await?;
    client.query_typed("SELECT pg_advisory_xact_lock($1)", &[(&LOCK, Type::INT8)]).await?;
    client
        .batch_execute(
            "CREATE TABLE IF NOT EXISTS posthaste_migration (version integer PRIMARY KEY, name text NOT NULL, checksum text NOT NULL,
               applied_at timestamptz NOT NULL DEFAULT clock_timestamp())",
        )
        .await?;
    let version = pending.version as i32;
    let noted = client
        .query_typed(
            "INSERT INTO posthaste_migration (version, name, checksum) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING RETURNING 1",
            &[(&version, Type::INT4), (&pending.name, Type::TEXT), (&pending.checksum, Type::TEXT)],
        )
        .await?;
    if noted.is_empty() {
        client.batch_execute("ROLLBACK").await?;
        return Ok(false);
    }
    if let Some(step) = STEPS.iter().find(|step| step.version == pending.version) {
        client.batch_execute(step.text).await?;
    }
    if pending.version == 1 {
        install(client, partitions).await?;
    }
    client.batch_execute("COMMIT").await?;
    Ok(true)
}

/// What is fixed at installation.
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

/// The server knows SHA-256, so no library has to.
async fn checksum(client: &Client, text: &str) -> Result<String, tokio_postgres::Error> {
    let rows = client.query_typed("SELECT encode(sha256($1), 'hex')", &[(&text.as_bytes(), Type::BYTEA)]).await?;
    rows.first().map_or_else(|| Ok(String::new()), |row| row.try_get(0))
}

fn read(row: &Row) -> Migration {
    Migration {
        version: row.get::<_, i32>(0).unsigned_abs(),
        name: row.get(1),
        checksum: row.get(2),
        applied_at: Some(value::timestamp(row.get(3))),
    }
}

/// The pending ones in words, for whoever has to apply them.
pub(crate) fn missing(migrations: &[Migration]) -> Option<String> {
    let names: Vec<String> = migrations
        .iter()
        .filter(|migration| migration.applied_at.is_none())
        .map(|migration| format!("V{}__{}", migration.version, migration.name))
        .collect();
    (!names.is_empty()).then(|| names.join(", "))
}
