//! Opens SQLite connections, and sets the pragmas of the writing and the reading ones.
use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use crate::options::WriterMode;

/// Name of the database file in the data folder.
pub(crate) const FILE: &str = "posthaste.db";

/// Longest wait for another process's write (a command line during a running service).
const BUSY: Duration = Duration::from_secs(5);

/// Pages in the write-ahead log after which a commit checkpoints it: fewer cost more writes, more make a restart slower.
const CHECKPOINT_PAGES: u32 = 4_000;

/// Size to which the write-ahead log shrinks after a burst.
const WAL_LIMIT_BYTES: u32 = 64 * 1024 * 1024;

/// Page cache of a reader: it reads along indexes, and the operating system caches the file.
const READER_CACHE_KIB: u32 = 2 * 1024;

/// Opens the file or creates it empty.
pub(crate) fn open(path: &Path) -> rusqlite::Result<Connection> {
    connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE)
}

/// Opens an existing file; a missing file is an error.
pub(crate) fn open_existing(path: &Path) -> rusqlite::Result<Connection> {
    connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)
}

fn connect(path: &Path, flags: OpenFlags) -> rusqlite::Result<Connection> {
    let sql = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    sql.busy_timeout(BUSY)?;
    sql.set_prepared_statement_cache_capacity(160);
    // Plans must not depend on bound values: with STAT4 compiled in, SQLite otherwise prepares a claim again for every new lower bound,
    // which took a tenth of the writer's time.
    sql.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(sql)
}

/// Configures a connection for writing: WAL, and fsync of each commit except in inline mode.
pub(crate) fn for_writing(sql: &Connection, cache_kib: u32, writing: WriterMode) -> rusqlite::Result<()> {
    sql.pragma_update(None, "journal_mode", "WAL")?;
    sql.pragma_update(None, "synchronous", if writing == WriterMode::Thread { "FULL" } else { "OFF" })?;
    sql.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
    sql.pragma_update(None, "journal_size_limit", WAL_LIMIT_BYTES)?;
    sql.pragma_update(None, "foreign_keys", false)?;
    sql.pragma_update(None, "temp_store", "MEMORY")?;
    cache(sql, cache_kib)
}

/// Checkpoints the write-ahead log, and makes the next commit reuse it from its start. Waits at most `timeout` for the readers.
pub(crate) fn restart_wal(sql: &Connection, timeout: Duration) -> rusqlite::Result<()> {
    sql.busy_timeout(timeout)?;
    let restarted = sql.query_row("PRAGMA wal_checkpoint(RESTART)", [], |_| Ok(()));
    sql.busy_timeout(BUSY)?;
    restarted
}

/// Configures a connection that can only read.
pub(crate) fn for_reading(sql: &Connection) -> rusqlite::Result<()> {
    sql.pragma_update(None, "query_only", true)?;
    sql.pragma_update(None, "temp_store", "MEMORY")?;
    cache(sql, READER_CACHE_KIB)
}

fn cache(sql: &Connection, kib: u32) -> rusqlite::Result<()> {
    sql.pragma_update(None, "cache_size", -i64::from(kib))
}
