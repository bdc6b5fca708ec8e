//! Why a data folder could not be opened, in words that say who can mend it.
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;

/// Why [`crate::Embedded::open`] failed. Nothing in the folder was changed unless the text says so.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another living process has the folder. Stop it, or choose another `store.path`.
    #[error("{folder} is held by instance {instance} (pid {pid}, listening on {address})", folder = folder.display())]
    Held {
        /// The holder's instance id.
        instance: String,
        /// The holder's process.
        pid: String,
        /// The folder.
        folder: PathBuf,
        /// Where the holder listens, as far as it said.
        address: String,
    },
    /// The folder or a file in it may not be written, or is no folder.
    #[error("{path} cannot be written: {reason}", path = path.display())]
    NotWritable {
        /// What.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The disk is full: a store that is not there yet. May be tried again.
    #[error("no room left for {path}: {reason}", path = path.display())]
    Full {
        /// What.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The file is no database of ours, or is damaged. It was not touched: restore it from a copy, or move it away.
    #[error("{path} is damaged or not a posthaste store, and was left as it is: {reason}", path = path.display())]
    Damaged {
        /// What.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A later version of this program wrote the file. Run that one.
    #[error("{path} has schema version {found}; this program knows {known} at most", path = path.display())]
    NewerSchema {
        /// What.
        path: PathBuf,
        /// The file's version.
        found: u32,
        /// The latest version known here.
        known: u32,
    },
    /// The folder holds no store, or an older one that only a service may bring up to date; only when opening beside a service.
    #[error("{path} holds no store that can be looked into: {reason}", path = path.display())]
    Absent {
        /// What.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The number of partitions is fixed when a folder is first used.
    #[error(
        "outbox.partitions is {configured}, but {path} was installed with {installed}; keep {installed}, or drain and start a new folder",
        path = path.display()
    )]
    PartitionsChanged {
        /// What.
        path: PathBuf,
        /// The number of the installation.
        installed: u32,
        /// The number asked for.
        configured: u32,
    },
    /// Anything else the operating system says. May be tried again.
    #[error("{path}: {reason}", path = path.display())]
    Io {
        /// What.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

impl OpenError {
    /// Whether waiting may help: the disk may get room, the machine may come to its senses.
    pub fn may_pass(&self) -> bool {
        matches!(self, OpenError::Full { .. } | OpenError::Io { .. })
    }

    pub(crate) fn of_io(path: &Path, error: &std::io::Error) -> Self {
        use std::io::ErrorKind as Kind;
        let (path, reason) = (path.to_path_buf(), error.to_string());
        match error.kind() {
            Kind::PermissionDenied | Kind::ReadOnlyFilesystem | Kind::NotADirectory | Kind::AlreadyExists => {
                Self::NotWritable { path, reason }
            }
            Kind::StorageFull | Kind::QuotaExceeded => Self::Full { path, reason },
            _ => Self::Io { path, reason },
        }
    }

    pub(crate) fn of_sql(path: &Path, error: &rusqlite::Error) -> Self {
        let (path, reason) = (path.to_path_buf(), error.to_string());
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => Self::Full { path, reason },
            Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
                Self::NotWritable { path, reason }
            }
            Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => Self::Damaged { path, reason },
            Some(ErrorCode::SystemIoFailure | ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                Self::Io { path, reason }
            }
            // Missing tables and unreadable values: somebody else's file under our name.
            _ => Self::Damaged { path, reason },
        }
    }
}
