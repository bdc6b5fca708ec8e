//! Errors of opening a data folder; each names its cause and its remedy.
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;

use crate::connection::free_space::{is_full, write_test_file};

/// An error of [`crate::Embedded::open`]. Nothing in the folder was changed unless the text says so.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another running process holds the folder. Stop it, or choose another `store.path`.
    #[error("{folder} is held by instance {instance} (pid {pid}, listening on {address})", folder = folder.display())]
    Held {
        /// Instance id of the holder.
        instance: String,
        /// Process id of the holder.
        pid: String,
        /// The folder that is held.
        folder: PathBuf,
        /// Address on which the holder listens; `unknown` if it announced none.
        address: String,
    },
    /// A process has locked the folder itself and not its lock file: another program, such as `flock`, a service of which the folder links to
    /// this database, or a service of which the lock file was deleted.
    #[error(
        "{folder} is locked by {holder}, and no process holds its posthaste.lock; a service locks its folder itself, so a program such as flock must lock another file",
        folder = folder.display()
    )]
    Locked {
        /// The folder that is locked.
        folder: PathBuf,
        /// The process that has locked it, as far as the operating system names it.
        holder: String,
    },
    /// A file in the folder may not be read. Only operators' commands return it.
    #[error("{path} cannot be read: {reason}; run the command as the user of the service, to which store.path belongs", path = path.display())]
    NotReadable {
        /// File with the problem.
        path: PathBuf,
        /// Cause as the operating system reports it.
        reason: String,
    },
    /// The folder or a file in it is not writable, or the path is not a folder.
    #[error("{path} cannot be written: {reason}; store.path must be a folder that the user of this process may write", path = path.display())]
    NotWritable {
        /// File or folder with the problem.
        path: PathBuf,
        /// Cause as the operating system or SQLite reports it.
        reason: String,
    },
    /// The disk is full, so the store could not be created or migrated. A later attempt may succeed.
    #[error("no space left for {path}: {reason}", path = path.display())]
    Full {
        /// File or folder with the problem.
        path: PathBuf,
        /// Cause as the operating system or SQLite reports it.
        reason: String,
    },
    /// The file is not a posthaste database, or is damaged. It was not changed: restore it from a copy, or move it away.
    #[error(
        "{path} is damaged or not a posthaste store, and was left as it is: {reason}; restore it from a copy, or move it away to begin anew",
        path = path.display()
    )]
    Damaged {
        /// File or folder with the problem.
        path: PathBuf,
        /// The damage, as SQLite reports it or this program has found it.
        reason: String,
    },
    /// A later version of this program wrote the file. Run that version.
    #[error("{path} has schema version {found}; this program knows {known} at most: run the newer program", path = path.display())]
    NewerSchema {
        /// File or folder with the problem.
        path: PathBuf,
        /// Schema version of the file.
        found: u32,
        /// Latest schema version that this program knows.
        known: u32,
    },
    /// The folder contains no store, or an older one that only a service may migrate. Only [`crate::Embedded::open_for_operator`] returns it.
    #[error("{path} contains no store that can be read: {reason}", path = path.display())]
    Absent {
        /// File or folder with the problem.
        path: PathBuf,
        /// What is missing, and what the operator does about it.
        reason: String,
    },
    /// The number of partitions is fixed when a folder is first used.
    #[error(
        "outbox.partitions is {configured}, but {path} was installed with {installed}; keep {installed}, or drain and start a new folder",
        path = path.display()
    )]
    PartitionsChanged {
        /// File or folder with the problem.
        path: PathBuf,
        /// The number of partitions in the file.
        installed: u32,
        /// The number of partitions in the options.
        configured: u32,
    },
    /// Any other error of the operating system. A later attempt may succeed.
    #[error("{path}: {reason}", path = path.display())]
    Io {
        /// File or folder with the problem.
        path: PathBuf,
        /// Cause as the operating system or SQLite reports it.
        reason: String,
    },
}

impl OpenError {
    /// Whether a later attempt may succeed without a change by an operator: a full disk or an I/O error.
    pub fn is_temporary(&self) -> bool {
        matches!(self, OpenError::Full { .. } | OpenError::Io { .. })
    }

    pub(crate) fn from_io(path: &Path, error: &std::io::Error) -> Self {
        use std::io::ErrorKind as Kind;
        let (path, reason) = (path.to_path_buf(), error.to_string());
        match error.kind() {
            Kind::PermissionDenied
            | Kind::ReadOnlyFilesystem
            | Kind::NotADirectory
            | Kind::IsADirectory
            | Kind::AlreadyExists
            | Kind::InvalidFilename
            | Kind::InvalidInput => Self::NotWritable { path, reason },
            Kind::StorageFull | Kind::QuotaExceeded => Self::Full { path, reason },
            _ => Self::Io { path, reason },
        }
    }

    /// As [`OpenError::from_io`], where the file is only read.
    pub(crate) fn from_read(path: &Path, error: &std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::PermissionDenied => {
                Self::NotReadable { path: path.to_path_buf(), reason: error.to_string() }
            }
            _ => Self::from_io(path, error),
        }
    }

    pub(crate) fn from_sqlite(path: &Path, error: &rusqlite::Error) -> Self {
        let (path, reason) = (path.to_path_buf(), error.to_string());
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => Self::Full { path, reason },
            // SQLite creates files beside this one, and reports a file system without inodes as it reports a folder without permission.
            Some(ErrorCode::CannotOpen) if has_no_space(path.parent()) => Self::Full { path, reason },
            Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
                Self::NotWritable { path, reason }
            }
            Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => Self::Damaged { path, reason },
            Some(ErrorCode::SystemIoFailure | ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                Self::Io { path, reason }
            }
            // Missing tables and unreadable values: another program's file under this name.
            _ => Self::Damaged { path, reason },
        }
    }
}

/// Whether no file can be written in this folder for lack of space or inodes.
fn has_no_space(folder: Option<&Path>) -> bool {
    let written = folder.map(|folder| write_test_file(folder, 1));
    written.and_then(Result::err).is_some_and(|error| is_full(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_that_cannot_be_opened_on_a_full_disk_is_temporary() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("posthaste.db");
        let cannot_open =
            rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CANTOPEN), None);
        // Writes to the link fail with a full disk. The check removes the link, so the next one succeeds.
        std::os::unix::fs::symlink("/dev/full", folder.path().join("posthaste.room")).unwrap();

        let full = OpenError::from_sqlite(&path, &cannot_open);
        let not_full = OpenError::from_sqlite(&path, &cannot_open);

        assert!(matches!(full, OpenError::Full { .. }) && full.is_temporary(), "{full:?}");
        assert!(matches!(not_full, OpenError::NotWritable { .. }), "{not_full:?}");
        assert!(!folder.path().join("posthaste.room").exists());
    }

    #[test]
    fn file_that_may_not_be_read_is_named_with_the_user_who_may() {
        let denied = std::io::Error::from(std::io::ErrorKind::PermissionDenied);

        let error = OpenError::from_read(Path::new("data/posthaste.lock"), &denied);

        let text = error.to_string();
        assert!(text.starts_with("data/posthaste.lock cannot be read: ") && text.contains("the user of the service"));
        assert!(!error.is_temporary());
    }
}
