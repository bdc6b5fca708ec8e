//! The schema and its versions. Forward only: each migration commits in one transaction with its number.
use std::path::Path;

use rusqlite::{Connection, params};

use crate::connection::open_error::OpenError;

/// Every migration, oldest first; a file's `user_version` is the number of those that ran on it.
const MIGRATIONS: &[&str] = &[
    include_str!("migrations/V1__orders_outbox_log_and_inbox.sql"),
    include_str!("migrations/V2__owners_in_batches.sql"),
    include_str!("migrations/V3__redriven_dead_letters.sql"),
    include_str!("migrations/V4__last_attempts.sql"),
    include_str!("migrations/V5__events_of_any_service.sql"),
    include_str!("migrations/V6__events_over_http.sql"),
    include_str!("migrations/V7__webhooks.sql"),
    include_str!("migrations/V8__detours_end_with_their_last_message.sql"),
    include_str!("migrations/V9__contract_checksum.sql"),
    include_str!("migrations/V10__table_names_in_plain_words.sql"),
];

/// The latest schema version of this program.
pub(crate) const LATEST: u32 = MIGRATIONS.len() as u32;

/// SQLite's application id of a posthaste file: "phst".
const APPLICATION_ID: u32 = 0x7068_7374;

/// Properties that are fixed when a folder is first used.
pub(crate) struct Installation<'a> {
    /// Id of the installation; `None` generates a random UUID.
    pub(crate) id: Option<&'a str>,
    /// Number of outbox partitions.
    pub(crate) partitions: u32,
}

/// Refuses a later program's file.
pub(crate) fn check_supported(found: u32, path: &Path) -> Result<(), OpenError> {
    if found > LATEST {
        return Err(OpenError::NewerSchema { path: path.to_path_buf(), found, known: LATEST });
    }
    Ok(())
}

/// The schema version of a posthaste file, also of a later program's, which this does not change; 0 for an empty file. A foreign file is an error.
pub(crate) fn file_version(sql: &Connection, path: &Path) -> Result<u32, OpenError> {
    let sql_error = |error: rusqlite::Error| OpenError::from_sqlite(path, &error);
    let number = |pragma: &str| sql.pragma_query_value(None, pragma, |row| row.get::<_, u32>(0)).map_err(sql_error);
    let (found, application) = (number("user_version")?, number("application_id")?);
    let tables: i64 = sql.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).map_err(sql_error)?;
    let empty = tables == 0 && found == 0;
    if !empty && application != APPLICATION_ID {
        let reason = "it is another program's database".to_string();
        return Err(OpenError::Damaged { path: path.to_path_buf(), reason });
    }
    Ok(found)
}

/// Migrates the file to the latest version.
pub(crate) fn migrate(sql: &mut Connection, from: u32, installation: &Installation<'_>) -> rusqlite::Result<()> {
    for (number, migration) in MIGRATIONS.iter().enumerate().skip(from as usize) {
        let transaction = sql.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        transaction.execute_batch(migration)?;
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
    let id = match installation.id {
        Some(id) => id.to_string(),
        None => sql.query_row("SELECT lower(hex(randomblob(16)))", [], |row| row.get::<_, String>(0)).map(uuid)?,
    };
    sql.execute("INSERT INTO meta VALUES ('installation', ?1)", [id])?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_renamed_tables_are_kept() {
        let mut sql = Connection::open_in_memory().unwrap();
        for migration in &MIGRATIONS[..9] {
            sql.execute_batch(migration).unwrap();
        }
        let rows = "INSERT INTO heartbeat VALUES (1, 1000); INSERT INTO member VALUES ('a', 1000, 500);
            INSERT INTO mark (subject, key, fingerprint, order_id, created_at) VALUES ('ann', 'k', x'01', x'02', 1000);
            INSERT INTO detour VALUES ('g', 'k', 2, 7); INSERT INTO lane VALUES ('a-0', 3, 'a-0.3');
            INSERT INTO redriven_letter VALUES ('t', 0, 5, 9, 1000, 1, 'olga', 'fixed');
            INSERT INTO audit (acted_at, action, row_id, who, why) VALUES (1000, 'PARK', 4, 'olga', 'broken')";
        sql.execute_batch(rows).unwrap();

        migrate(&mut sql, 9, &Installation { id: None, partitions: 1 }).unwrap();

        for (selected, expected) in [
            ("'' || beaten_at FROM store_probe", "1000"),
            ("instance || seen_at || dead_after_ms FROM relay_instance", "a1000500"),
            ("subject || key || created_at FROM idempotency_record", "annk1000"),
            ("consumer_group || key || stage || last_offset FROM retry_route", "gk27"),
            ("base || session || id FROM producer_session", "a-03a-0.3"),
            ("topic || offset || arrived || operator || reason FROM redriven_dead_letter", "t51olgafixed"),
            ("action || row_id || operator || reason FROM outbox_audit", "PARK4olgabroken"),
        ] {
            let found: String = sql.query_row(&format!("SELECT {selected}"), [], |row| row.get(0)).unwrap();
            assert_eq!(found, expected, "{selected}");
        }
    }
}
