//! The longest path of a database that SQLite opens. For a longer one it reports only that it cannot open the file.
use std::path::{Path, PathBuf};

use crate::connection::open_error::OpenError;

/// On Unix SQLite's paths have 512 bytes at most, the ending of a journal included.
const BYTES_MAX: usize = 512 - "-journal".len();

/// Refuses a path that SQLite cannot open, before anything is created.
///
/// # Errors
/// [`OpenError::NotWritable`].
pub(crate) fn check_length(database: &Path) -> Result<(), OpenError> {
    let absolute = std::path::absolute(database).unwrap_or_else(|_| database.to_path_buf());
    let bytes = resolve(&absolute).as_os_str().len();
    if cfg!(not(unix)) || bytes <= BYTES_MAX {
        return Ok(());
    }
    let reason = format!("this path has {bytes} bytes, and SQLite opens paths of {BYTES_MAX} bytes at most");
    Err(OpenError::NotWritable { path: database.to_path_buf(), reason })
}

/// The path without links, as SQLite measures it. The end of the path need not exist yet.
fn resolve(path: &Path) -> PathBuf {
    match (path.canonicalize(), path.parent(), path.file_name()) {
        (Ok(resolved), ..) => resolved,
        (Err(_), Some(parent), Some(name)) => resolve(parent).join(name),
        (Err(_), ..) => path.to_path_buf(),
    }
}
