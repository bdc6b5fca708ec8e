//! PostgreSQL's errors as errors of the ports. One table classifies SQLSTATEs; the stage of the statement decides whether it may have
//! changed something.
use ports::Error;
use tokio_postgres::error::{Severity, SqlState};

/// Meaning of an error of the client or the server for the statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorClass {
    /// The connection broke before the reply arrived.
    ConnectionLost,
    /// The server cannot run it now: shutting down, starting, read only, out of connections, a timeout.
    Unavailable,
    /// The server is out of memory or slots.
    Overloaded,
    /// A deadlock or a serialization failure: nothing was changed, a repetition may succeed at once.
    Conflict,
    /// A lease expired while its statement waited for a lock: the statement rolled itself back.
    LeaseExpired,
    /// A row stayed locked for longer than `lock_timeout`: nothing was changed.
    LockTimeout,
    /// The server's disk is full.
    DiskFull,
    /// The server can never accept this data.
    InvalidData,
    /// Something is missing or damaged that no repetition repairs.
    Broken,
}

/// SQLSTATEs by prefix; the first match decides, so longer prefixes come first.
const TABLE: [(&str, ErrorClass); 28] = [
    ("40001", ErrorClass::Conflict),    // serialization_failure
    ("40P01", ErrorClass::Conflict),    // deadlock_detected
    ("53100", ErrorClass::DiskFull),    // disk_full
    ("53200", ErrorClass::Overloaded),  // out_of_memory
    ("53300", ErrorClass::Unavailable), // too_many_connections
    ("53400", ErrorClass::Overloaded),  // configuration_limit_exceeded
    ("53", ErrorClass::Overloaded),
    ("57014", ErrorClass::Unavailable), // query_canceled: statement_timeout
    ("57P04", ErrorClass::Broken),      // database_dropped
    ("57P", ErrorClass::Unavailable),   // admin_shutdown, crash_shutdown, cannot_connect_now, idle_session_timeout
    ("55P03", ErrorClass::LockTimeout), // lock_not_available: lock_timeout
    ("55P04", ErrorClass::Broken),
    ("55", ErrorClass::Unavailable),    // object_in_use, object_not_in_prerequisite_state
    ("25006", ErrorClass::Unavailable), // read_only_sql_transaction: a standby, or a primary that was demoted
    ("25P03", ErrorClass::Unavailable), // idle_in_transaction_session_timeout
    ("25", ErrorClass::Unavailable),
    ("08", ErrorClass::ConnectionLost), // connection_exception
    ("58030", ErrorClass::Unavailable), // io_error
    ("58", ErrorClass::Broken),
    ("22012", ErrorClass::LeaseExpired), // division_by_zero: only the claim divides, by the validity of its lease
    ("22", ErrorClass::InvalidData),     // data_exception: an invalid character, a number out of range
    ("23", ErrorClass::InvalidData),     // integrity_constraint_violation
    ("54", ErrorClass::InvalidData),     // program_limit_exceeded
    ("28", ErrorClass::Broken),          // invalid_authorization
    ("26", ErrorClass::Broken),          // invalid_sql_statement_name: an undeclared pooler
    ("3D", ErrorClass::Broken),          // invalid_catalog_name
    ("42", ErrorClass::Broken),          // undefined_table, insufficient_privilege
    ("XX", ErrorClass::Broken),          // internal_error, data_corrupted
];

/// The class of an SQLSTATE; states that the table lacks are broken.
fn class_of_state(state: &str) -> ErrorClass {
    TABLE.iter().find(|(prefix, _)| state.starts_with(prefix)).map_or(ErrorClass::Broken, |(_, class)| *class)
}

/// The class of an error of the client.
pub(crate) fn error_class(error: &tokio_postgres::Error) -> ErrorClass {
    match error.code().map(SqlState::code) {
        Some(state) => class_of_state(state),
        // A value that cannot be encoded or decoded is a defect of the program or of the row; anything else is the connection.
        None if is_conversion(error) => ErrorClass::Broken,
        None => ErrorClass::ConnectionLost,
    }
}

fn is_conversion(error: &tokio_postgres::Error) -> bool {
    let text = error.to_string();
    ["error serializing", "error deserializing", "invalid column", "expected ", "invalid configuration"]
        .iter()
        .any(|prefix| text.starts_with(prefix))
}

/// The server's message and SQLSTATE, without its DETAIL, which may contain a row's data.
pub(crate) fn describe(error: &tokio_postgres::Error) -> String {
    if let Some(db) = error.as_db_error() {
        return format!("{} (SQLSTATE {})", db.message(), db.code().code());
    }
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

/// Whether a failed statement may have changed something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommitStage {
    /// A read, or a statement of a transaction before its COMMIT: nothing is changed.
    BeforeCommit,
    /// COMMIT, or a statement that commits by itself: without a reply it may have changed something.
    Committing,
}

/// The error of one or more statements.
#[derive(Debug)]
pub(crate) enum StatementError {
    /// A deadlock or a serialization failure; nothing was changed, a repetition may succeed at once.
    Conflict(String),
    /// The lease expired while the statement waited; nothing was changed.
    LeaseExpired,
    /// A row stayed locked for too long; nothing was changed.
    LockTimeout(String),
    /// An error that the port returns as it is.
    Port(Error),
}

/// The result of one or more statements.
pub(crate) type StatementResult<T> = Result<T, StatementError>;

impl From<Error> for StatementError {
    fn from(error: Error) -> Self {
        StatementError::Port(error)
    }
}

impl StatementError {
    /// The error that the port returns.
    pub(crate) fn into_port(self) -> Error {
        match self {
            StatementError::Conflict(detail) | StatementError::LockTimeout(detail) => Error::Unreachable(detail),
            StatementError::LeaseExpired => Error::Unreachable("the lease expired while the statement waited".into()),
            StatementError::Port(error) => error,
        }
    }
}

/// The error of a statement that failed at `stage`.
pub(crate) fn statement_error(error: &tokio_postgres::Error, stage: CommitStage) -> StatementError {
    // A FATAL error ends the session, and may arrive after the commit but before its reply.
    let fatal = error.as_db_error().is_some_and(|db| {
        db.parsed_severity().is_none_or(|severity| matches!(severity, Severity::Fatal | Severity::Panic))
    });
    classify(error_class(error), fatal, stage, describe(error))
}

fn classify(class: ErrorClass, fatal: bool, stage: CommitStage, detail: String) -> StatementError {
    if stage == CommitStage::Committing && (fatal || class == ErrorClass::ConnectionLost) {
        return StatementError::Port(Error::Unknown(detail));
    }
    match class {
        ErrorClass::Conflict => StatementError::Conflict(detail),
        ErrorClass::LeaseExpired => StatementError::LeaseExpired,
        ErrorClass::LockTimeout => StatementError::LockTimeout(detail),
        ErrorClass::ConnectionLost | ErrorClass::Unavailable => StatementError::Port(Error::Unreachable(detail)),
        ErrorClass::Overloaded => StatementError::Port(Error::Overloaded(detail)),
        ErrorClass::DiskFull => StatementError::Port(Error::Full(detail)),
        ErrorClass::InvalidData => StatementError::Port(Error::Rejected(detail)),
        ErrorClass::Broken => StatementError::Port(Error::Broken(detail)),
    }
}

/// Repetitions of a transaction that lost a conflict: 4, because the winner has usually committed by the first one.
pub(crate) const CONFLICT_RETRIES_MAX: u32 = 4;

/// Awaits the expression, and evaluates it again after each [`StatementError::Conflict`], up to [`CONFLICT_RETRIES_MAX`] times.
macro_rules! retry_conflicts {
    ($attempt:expr) => {{
        let mut retries = 0;
        loop {
            match $attempt.await {
                Err($crate::connection::statement_error::StatementError::Conflict(_))
                    if retries < $crate::connection::statement_error::CONFLICT_RETRIES_MAX =>
                {
                    retries += 1
                }
                result => break result,
            }
        }
    }};
}
pub(crate) use retry_conflicts;

/// The error for a row that this program cannot have written.
pub(crate) fn broken(detail: impl std::fmt::Display) -> StatementError {
    StatementError::Port(Error::Broken(detail.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sqlstates_are_classified_by_the_table() {
        let cases = [
            ("53100", ErrorClass::DiskFull),
            ("53300", ErrorClass::Unavailable),
            ("53200", ErrorClass::Overloaded),
            ("57P01", ErrorClass::Unavailable),
            ("57P02", ErrorClass::Unavailable),
            ("57P03", ErrorClass::Unavailable),
            ("57014", ErrorClass::Unavailable),
            ("25006", ErrorClass::Unavailable),
            ("40001", ErrorClass::Conflict),
            ("40P01", ErrorClass::Conflict),
            ("55P03", ErrorClass::LockTimeout),
            ("08006", ErrorClass::ConnectionLost),
            ("22021", ErrorClass::InvalidData),
            ("23505", ErrorClass::InvalidData),
            ("42P01", ErrorClass::Broken),
            ("26000", ErrorClass::Broken),
            ("XX001", ErrorClass::Broken),
            ("99999", ErrorClass::Broken),
        ];

        for (state, class) in cases {
            assert_eq!(class_of_state(state), class, "{state}");
        }
    }

    #[test]
    fn only_a_commit_without_a_reply_has_an_unknown_outcome() {
        let port_error = |class, fatal, stage| classify(class, fatal, stage, "x".into()).into_port();

        assert!(matches!(port_error(ErrorClass::ConnectionLost, false, CommitStage::Committing), Error::Unknown(_)));
        assert!(
            matches!(port_error(ErrorClass::Unavailable, true, CommitStage::Committing), Error::Unknown(_)),
            "FATAL may follow the commit"
        );
        assert!(matches!(port_error(ErrorClass::Unavailable, false, CommitStage::Committing), Error::Unreachable(_)));
        assert!(matches!(port_error(ErrorClass::DiskFull, false, CommitStage::Committing), Error::Full(_)));
        assert!(matches!(
            port_error(ErrorClass::ConnectionLost, false, CommitStage::BeforeCommit),
            Error::Unreachable(_)
        ));
        assert!(matches!(port_error(ErrorClass::Unavailable, true, CommitStage::BeforeCommit), Error::Unreachable(_)));
        assert!(matches!(
            classify(ErrorClass::Conflict, false, CommitStage::Committing, "x".into()),
            StatementError::Conflict(_)
        ));
    }
}
