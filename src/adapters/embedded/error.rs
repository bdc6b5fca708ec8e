//! SQLite's errors as the port's: what each leaves behind decides its name.
use ports::Error;
use rusqlite::ErrorCode;

/// Why a command did not succeed: SQLite said no, or we did.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// SQLite's error.
    Sql(rusqlite::Error),
    /// Ours.
    Said(Error),
}

/// What a command comes to.
pub(crate) type Answer<T> = Result<T, Trouble>;

impl From<rusqlite::Error> for Trouble {
    fn from(error: rusqlite::Error) -> Self {
        Trouble::Sql(error)
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Trouble::Said(error)
    }
}

impl Trouble {
    /// What the caller of the port hears; `doing` names the command.
    pub(crate) fn told(&self, doing: &str) -> Error {
        match self {
            Trouble::Sql(error) => of_statement(error, doing),
            Trouble::Said(error) => error.clone(),
        }
    }
}

/// An error of a statement that is rolled back: nothing was changed.
pub(crate) fn of_statement(error: &rusqlite::Error, doing: &str) -> Error {
    let said = format!("{doing}: {error}");
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => Error::Full(said),
        Some(ErrorCode::SystemIoFailure) if no_room_for_shared_memory(error) => Error::Full(said),
        Some(
            ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::SystemIoFailure
            | ErrorCode::CannotOpen
            | ErrorCode::OutOfMemory
            | ErrorCode::OperationInterrupted
            | ErrorCode::FileLockingProtocolFailed,
        ) => Error::Unreachable(said),
        Some(ErrorCode::ConstraintViolation | ErrorCode::TooBig | ErrorCode::TypeMismatch) => Error::Rejected(said),
        _ => Error::Broken(said),
    }
}

/// An error of COMMIT itself. A full disk and a busy file leave nothing behind; after any other failure the last frames may have reached the disk.
pub(crate) fn of_commit(error: &rusqlite::Error) -> Error {
    match of_statement(error, "commit") {
        known @ (Error::Full(_) | Error::Rejected(_)) => known,
        Error::Unreachable(said) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => {
            Error::Unreachable(said)
        }
        other => Error::Unknown(other.to_string()),
    }
}

/// The wal-index grows by extending a file, and a disk without room for it answers with an I/O error of its own.
fn no_room_for_shared_memory(error: &rusqlite::Error) -> bool {
    error.sqlite_error().is_some_and(|inner| inner.extended_code == rusqlite::ffi::SQLITE_IOERR_SHMSIZE)
}

/// A value in the file that we never wrote there.
pub(crate) fn broken(what: impl std::fmt::Display) -> Trouble {
    Trouble::Said(Error::Broken(what.to_string()))
}
