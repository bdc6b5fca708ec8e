//! Whether the files of a folder are complete, before SQLite opens them: SQLite takes a damaged write-ahead log (WAL) for a shorter one, and deletes
//! the log of an empty database.
use std::fs::File;
use std::io::{BufReader, ErrorKind};
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use rusqlite::config::DbConfig;

use crate::connection::folder::wal_scan::{WalDamage, WalScan, scan};
use crate::connection::migrations;
use crate::connection::open_error::OpenError;
use crate::connection::settings::FILE;

/// Opens the database of a folder with `connect`, and returns it with its schema version, also a later program's. `installation` is the one that a
/// service recorded in the folder.
///
/// # Errors
/// [`OpenError::Damaged`] where commits are missing. The files are left as they are.
pub(crate) fn open_complete(
    folder: &Path,
    installation: Option<&str>,
    connect: impl FnOnce(&Path) -> rusqlite::Result<Connection>,
) -> Result<(Connection, u32), OpenError> {
    let path = folder.join(FILE);
    let sql_error = |error: rusqlite::Error| OpenError::from_sqlite(&path, &error);
    let sql = connect(&path).map_err(sql_error)?;
    // The last connection that closes checkpoints the WAL and deletes it, which must not happen to the files of a folder that is refused.
    let keep_wal = |keep| sql.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, keep).map_err(sql_error);
    keep_wal(true)?;
    let version = migrations::file_version(&sql, &path)?;
    if let Some(installation) = installation.filter(|_| version == 0) {
        return Err(damaged(folder, without_data(FILE, "has no tables", installation)));
    }
    keep_wal(false)?;
    Ok((sql, version))
}

/// Refuses a folder without the data of the installation that a service recorded in it, or with a damaged WAL. Opens the WAL only: to close the
/// database's file would release the locks of this process's connections.
///
/// # Errors
/// [`OpenError::Damaged`] names the damage. [`OpenError::Io`] where a file cannot be read.
pub(crate) fn check_files(folder: &Path, installation: Option<&str>) -> Result<(), OpenError> {
    let path = folder.join(FILE);
    let database_bytes = match path.metadata() {
        Ok(metadata) => metadata.len(),
        Err(error) if is_absent(&error) => 0,
        Err(error) => return Err(OpenError::from_io(&path, &error)),
    };
    let wal = wal_path(&path);
    let scan = scan_file(&wal).map_err(|error| OpenError::from_io(&wal, &error))?;
    match missing_data(database_bytes, installation, &scan) {
        Some(reason) => Err(damaged(folder, reason)),
        None => Ok(()),
    }
}

/// The WAL of a database. SQLite creates it where the file is, not where a link to it is.
pub(crate) fn wal_path(database: &Path) -> PathBuf {
    let mut name = database.canonicalize().unwrap_or_else(|_| database.to_path_buf()).into_os_string();
    name.push("-wal");
    name.into()
}

fn missing_data(database_bytes: u64, installation: Option<&str>, wal: &WalScan) -> Option<String> {
    match (wal.damage, installation) {
        (Some(WalDamage::Header), _) => Some(format!("the header of its write-ahead log {FILE}-wal is damaged")),
        (Some(WalDamage::Frame { frame, synced_commits }), _) => Some(format!(
            "its write-ahead log {FILE}-wal is damaged in frame {frame}, so that {synced_commits} later commits or more cannot be read"
        )),
        (None, Some(installation)) if database_bytes == 0 => {
            Some(without_data(FILE, "is missing or empty", installation))
        }
        (None, None) if database_bytes == 0 && wal.commits > 0 => {
            Some(format!("{FILE} is missing or empty, and its write-ahead log {FILE}-wal has changes of it"))
        }
        (None, _) => None,
    }
}

fn without_data(file: &str, state: &str, installation: &str) -> String {
    format!(
        "{file} {state}, but posthaste.lock names the installation {installation}, which had its data there (if you deleted the data on purpose, \
         delete posthaste.lock too)"
    )
}

fn is_absent(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

fn damaged(folder: &Path, reason: String) -> OpenError {
    OpenError::Damaged { path: folder.to_path_buf(), reason }
}

/// Scans a WAL. Damage must be found twice: an operator's command may scan while another process begins the WAL anew.
fn scan_file(path: &Path) -> std::io::Result<WalScan> {
    let scan_once = || match File::open(path) {
        Ok(file) => scan(BufReader::with_capacity(1024 * 1024, file)),
        Err(error) if is_absent(&error) => Ok(WalScan::default()),
        Err(error) => Err(error),
    };
    let first = scan_once()?;
    if first.damage.is_none() {
        return Ok(first);
    }
    let second = scan_once()?;
    Ok(if second == first { first } else { WalScan { damage: None, ..second } })
}
