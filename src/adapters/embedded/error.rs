//! SQLite's errors as the port's errors: the state that each leaves behind decides the variant.
use ports::Error;
use rusqlite::ErrorCode;

/// The error of a command on the writer, or of a read.
#[derive(Debug)]
pub(crate) enum WriteError {
    /// An error of SQLite, not yet classified.
    Sql(rusqlite::Error),
    /// An error that the command itself decided.
    Port(Error),
}

/// The result of a command on the writer or of a read.
pub(crate) type CommandResult<T> = Result<T, WriteError>;

impl From<rusqlite::Error> for WriteError {
    fn from(error: rusqlite::Error) -> Self {
        WriteError::Sql(error)
    }
}

impl From<Error> for WriteError {
    fn from(error: Error) -> Self {
        WriteError::Port(error)
    }
}

impl WriteError {
    /// The error for the caller of the port; `operation` names the command.
    pub(crate) fn to_port_error(&self, operation: &str) -> Error {
        match self {
            WriteError::Sql(error) => statement_error(error, operation),
            WriteError::Port(error) => error.clone(),
        }
    }
}

/// An error of a statement that is rolled back: nothing was changed.
pub(crate) fn statement_error(error: &rusqlite::Error, operation: &str) -> Error {
    let message = format!("{operation}: {error}");
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => Error::Full(message),
        Some(ErrorCode::SystemIoFailure) if is_wal_index_full(error) => Error::Full(message),
        Some(
            ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::SystemIoFailure
            | ErrorCode::CannotOpen
            | ErrorCode::OutOfMemory
            | ErrorCode::OperationInterrupted
            | ErrorCode::FileLockingProtocolFailed,
        ) => Error::Unreachable(message),
        Some(ErrorCode::ConstraintViolation | ErrorCode::TooBig | ErrorCode::TypeMismatch) => Error::Rejected(message),
        _ => Error::Broken(message),
    }
}

/// An error of COMMIT itself. A full disk and a busy file leave nothing behind; after any other failure the last frames may have reached the disk.
/// SQLite extends the wal-index (the -shm file) after it has synced the frames. If that fails, COMMIT fails, but recovery still applies the frames:
/// the outcome is unknown.
pub(crate) fn commit_error(error: &rusqlite::Error) -> Error {
    match statement_error(error, "commit") {
        Error::Full(message) if is_wal_index_full(error) => Error::Unknown(message),
        known @ (Error::Full(_) | Error::Rejected(_)) => known,
        Error::Unreachable(message) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => {
            Error::Unreachable(message)
        }
        other => Error::Unknown(other.to_string()),
    }
}

/// Whether a full disk prevented the growth of the wal-index. SQLite reports that as an I/O error with an extended code.
fn is_wal_index_full(error: &rusqlite::Error) -> bool {
    error.sqlite_error().is_some_and(|inner| inner.extended_code == rusqlite::ffi::SQLITE_IOERR_SHMSIZE)
}

/// An error for a value in the file that this program never writes.
pub(crate) fn broken(reason: impl std::fmt::Display) -> WriteError {
    WriteError::Port(Error::Broken(reason.to_string()))
}

/// The error of a call after the store was closed.
pub(crate) fn closed(operation: &str) -> Error {
    Error::Unreachable(format!("{operation}: the store is closed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sqlite(code: i32) -> rusqlite::Error {
        rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), None)
    }

    #[test]
    fn full_disk_leaves_nothing_behind_except_after_the_frames_of_a_commit_were_synced() {
        use rusqlite::ffi::{SQLITE_FULL, SQLITE_IOERR_SHMSIZE};

        for code in [SQLITE_FULL, SQLITE_IOERR_SHMSIZE] {
            assert!(matches!(statement_error(&sqlite(code), "insert"), Error::Full(_)), "{code}");
        }
        assert!(matches!(commit_error(&sqlite(SQLITE_FULL)), Error::Full(_)));
        assert!(matches!(commit_error(&sqlite(SQLITE_IOERR_SHMSIZE)), Error::Unknown(_)));
    }
}
