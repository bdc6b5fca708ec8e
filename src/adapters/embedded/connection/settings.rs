//! Connections and their settings.
use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use crate::options::WriterMode;

/// The file's name in the folder.
pub(crate) const FILE: &str = "posthaste.db";

/// Longest wait for another process's write (the command line beside a running service).
const BUSY: Duration = Duration::from_secs(5);

/// Pages in the write-ahead log after which a commit moves them into the file: fewer cost more writes, more make a restart slower.
const CHECKPOINT_PAGES: u32 = 4_000;

/// What the write-ahead log shrinks back to after a burst.
const LOG_LIMIT_BYTES: u32 = 64 * 1024 * 1024;

/// Page cache of a reader: it reads along indexes, and the operating system caches the file.
const READER_CACHE_KIB: u32 = 2 * 1024;

/// Opens the file, or makes it, and changes nothing yet.
pub(crate) fn open(path: &Path) -> rusqlite::Result<Connection> {
    connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE)
}

/// Opens a file that is there.
pub(crate) fn open_existing(path: &Path) -> rusqlite::Result<Connection> {
    connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)
}

fn connect(path: &Path, flags: OpenFlags) -> rusqlite::Result<Connection> {
    let sql = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    sql.busy_timeout(BUSY)?;
    sql.set_prepared_statement_cache_capacity(160);
    // Plans that do not hang on bound values: with STAT4 compiled in, SQLite otherwise prepares a claim anew for every new lower bound,
    // which took a tenth of the writer's time.
    sql.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(sql)
}

/// Makes a connection fit for writing.
pub(crate) fn for_writing(sql: &Connection, cache_kib: u32, writing: WriterMode) -> rusqlite::Result<()> {
    sql.pragma_update(None, "journal_mode", "WAL")?;
    sql.pragma_update(None, "synchronous", if writing == WriterMode::Thread { "FULL" } else { "OFF" })?;
    sql.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
    sql.pragma_update(None, "journal_size_limit", LOG_LIMIT_BYTES)?;
    sql.pragma_update(None, "foreign_keys", false)?;
    sql.pragma_update(None, "temp_store", "MEMORY")?;
    cache(sql, cache_kib)
}

/// Makes a connection fit for reading, and for nothing else.
pub(crate) fn for_reading(sql: &Connection) -> rusqlite::Result<()> {
    sql.pragma_update(None, "query_only", true)?;
    sql.pragma_update(None, "temp_store", "MEMORY")?;
    cache(sql, READER_CACHE_KIB)
}

fn cache(sql: &Connection, kib: u32) -> rusqlite::Result<()> {
    sql.pragma_update(None, "cache_size", -i64::from(kib))
}
