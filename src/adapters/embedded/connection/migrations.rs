//! The schema and its versions. Forward only; each step runs in one transaction together with its number.
use std::path::Path;

use rusqlite::{Connection, params};

use crate::connection::open_error::OpenError;

/// Every step, oldest first; a file's `user_version` says how many it has seen.
const STEPS: &[&str] = &[
    include_str!("../../../../migrations/embedded/V1__orders_outbox_log_and_inbox.sql"),
    include_str!("../../../../migrations/embedded/V2__owners_in_batches.sql"),
    include_str!("../../../../migrations/embedded/V3__redriven_dead_letters.sql"),
];

/// The latest version.
pub(crate) const LATEST: u32 = STEPS.len() as u32;

/// Marks a file as ours: "phst".
const APPLICATION_ID: u32 = 0x7068_7374;

/// What is fixed when a folder is first used.
pub(crate) struct Installation<'a> {
    /// Its name.
    pub(crate) name: Option<&'a str>,
    /// Shares of keys.
    pub(crate) partitions: u32,
}

/// Looks whether the file is ours and not of a later program, without changing it. Answers its version; 0 is an empty file.
pub(crate) fn version(sql: &Connection, path: &Path) -> Result<u32, OpenError> {
    let found = written(sql, path)?;
    if found > LATEST {
        return Err(OpenError::NewerSchema { path: path.to_path_buf(), found, known: LATEST });
    }
    Ok(found)
}

/// The version with which a file of ours was written, also by a later program.
pub(crate) fn written(sql: &Connection, path: &Path) -> Result<u32, OpenError> {
    let result = |error: rusqlite::Error| OpenError::of_sql(path, &error);
    let number = |pragma: &str| sql.pragma_query_value(None, pragma, |row| row.get::<_, u32>(0)).map_err(result);
    let (found, application) = (number("user_version")?, number("application_id")?);
    let tables: i64 = sql.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).map_err(result)?;
    let empty = tables == 0 && found == 0;
    if !empty && application != APPLICATION_ID {
        let reason = "it is another program's database".to_string();
        return Err(OpenError::Damaged { path: path.to_path_buf(), reason });
    }
    Ok(found)
}

/// Brings the file to the latest version.
pub(crate) fn migrate(sql: &mut Connection, from: u32, installation: &Installation<'_>) -> rusqlite::Result<()> {
    for (number, step) in STEPS.iter().enumerate().skip(from as usize) {
        let transaction = sql.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        transaction.execute_batch(step)?;
        if number == 0 {
            install(&transaction, installation)?;
        }
        transaction.pragma_update(None, "user_version", number as u32 + 1)?;
        transaction.commit()?;
    }
    Ok(())
}

fn install(sql: &Connection, installation: &Installation<'_>) -> rusqlite::Result<()> {
    sql.pragma_update(None, "application_id", APPLICATION_ID)?;
    let name = match installation.name {
        Some(name) => name.to_string(),
        None => sql.query_row("SELECT lower(hex(randomblob(16)))", [], |row| row.get::<_, String>(0)).map(uuid)?,
    };
    sql.execute("INSERT INTO meta VALUES ('installation', ?1)", [name])?;
    sql.execute("INSERT INTO meta VALUES ('partitions', ?1)", [installation.partitions.to_string()])?;
    for partition in 0..installation.partitions {
        sql.execute("INSERT INTO outbox_lease (partition) VALUES (?1)", [partition])?;
        sql.execute("INSERT INTO outbox_count (partition) VALUES (?1)", [partition])?;
    }
    for status in domain::Status::ALL {
        sql.execute("INSERT INTO order_count VALUES (?1, 0)", params![status.as_str()])?;
    }
    Ok(())
}

/// Thirty-two random hexadecimal digits as a version 4 UUID.
fn uuid(hex: String) -> String {
    let part = |from: usize, to: usize| hex.get(from..to).unwrap_or_default();
    format!("{}-{}-4{}-8{}-{}", part(0, 8), part(8, 12), part(13, 16), part(17, 20), part(20, 32))
}
