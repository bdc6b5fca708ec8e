//! PostgreSQL's errors as the port's. One table says what an SQLSTATE means; what was under way says whether anything may have changed.
use ports::Error;
use tokio_postgres::error::{Severity, SqlState};

/// What a failure was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// The connection is gone, and with it the answer.
    Lost,
    /// The server cannot take it now: shutting down, starting, read only, no connection left, a limit of time.
    Away,
    /// No memory or no slots: overload.
    Busy,
    /// Lost against another transaction (a deadlock, a serialisation failure): nothing was changed, the same may succeed at once.
    Again,
    /// A lease ran out while its statement waited for a lock: the statement took itself back.
    Expired,
    /// No room left.
    Full,
    /// This data can never be accepted.
    Data,
    /// Something is missing or damaged that no repetition mends.
    Broken,
}

/// SQLSTATEs by their first characters, the longest match first.
const TABLE: [(&str, Class); 28] = [
    ("40001", Class::Again), // serialization_failure
    ("40P01", Class::Again), // deadlock_detected
    ("53100", Class::Full),  // disk_full
    ("53200", Class::Busy),  // out_of_memory
    ("53300", Class::Away),  // too_many_connections
    ("53400", Class::Busy),  // configuration_limit_exceeded
    ("53", Class::Busy),
    ("57014", Class::Away),   // query_canceled: the statement's limit of time
    ("57P04", Class::Broken), // database_dropped
    ("57P", Class::Away),     // admin_shutdown, crash_shutdown, cannot_connect_now, idle_session_timeout
    ("55P03", Class::Away),   // lock_not_available: the lock's limit of time
    ("55P04", Class::Broken),
    ("55", Class::Away),    // object_in_use, object_not_in_prerequisite_state
    ("25006", Class::Away), // read_only_sql_transaction: a standby, or a primary that was demoted
    ("25P03", Class::Away), // idle_in_transaction_session_timeout
    ("25", Class::Away),
    ("08", Class::Lost),    // connection_exception
    ("58030", Class::Away), // io_error
    ("58", Class::Broken),
    ("22012", Class::Expired), // division_by_zero: we divide by nothing but the validity of a lease
    ("22", Class::Data),       // data_exception: a character that cannot be stored, a number out of range
    ("23", Class::Data),       // integrity_constraint_violation
    ("54", Class::Data),       // program_limit_exceeded
    ("28", Class::Broken),     // invalid_authorization
    ("26", Class::Broken),     // invalid_sql_statement_name: a pooler that hands sessions on
    ("3D", Class::Broken),     // no such database
    ("42", Class::Broken),     // no such table, no right
    ("XX", Class::Broken),     // internal_error, data_corrupted
];

/// What an SQLSTATE means; what is not in the table is broken.
fn of_state(state: &str) -> Class {
    TABLE.iter().find(|(front, _)| state.starts_with(front)).map_or(Class::Broken, |(_, class)| *class)
}

/// What a client's error means.
pub(crate) fn class(error: &tokio_postgres::Error) -> Class {
    match error.code().map(SqlState::code) {
        Some(state) => of_state(state),
        // A value that cannot be sent or read is a defect of ours or of the row; all else is the wire.
        None if is_conversion(error) => Class::Broken,
        None => Class::Lost,
    }
}

fn is_conversion(error: &tokio_postgres::Error) -> bool {
    let text = error.to_string();
    ["error serializing", "error deserializing", "invalid column", "expected ", "invalid configuration"]
        .iter()
        .any(|front| text.starts_with(front))
}

/// The error in words, with the server's own message, and without a row's data (DETAIL may hold some).
pub(crate) fn words(error: &tokio_postgres::Error) -> String {
    if let Some(db) = error.as_db_error() {
        return format!("{} (SQLSTATE {})", db.message(), db.code().code());
    }
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

/// What was under way when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// A read, or a statement of a transaction that has not been asked to commit: nothing is changed, whatever happened to it.
    Harmless,
    /// COMMIT, or a statement that commits by itself: a lost answer may have changed something.
    Committing,
}

/// Why a piece of work did not succeed.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// Lost against another transaction; nothing was changed, the same may be tried at once.
    Again(String),
    /// The lease ran out meanwhile; nothing was changed.
    Expired,
    /// What the caller of the port hears.
    Said(Error),
}

/// What a piece of work comes to.
pub(crate) type Answer<T> = Result<T, Trouble>;

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Trouble::Said(error)
    }
}

impl Trouble {
    /// What the caller of the port hears.
    pub(crate) fn told(self) -> Error {
        match self {
            Trouble::Again(said) => Error::Unreachable(said),
            Trouble::Expired => Error::Unreachable("the lease ran out".into()),
            Trouble::Said(error) => error,
        }
    }
}

/// A client's error as ours.
pub(crate) fn trouble(error: &tokio_postgres::Error, stage: Stage) -> Trouble {
    // A FATAL answer ends the session, and may come after the commit but before its own answer.
    let fatal = error.as_db_error().is_some_and(|db| {
        db.parsed_severity().is_none_or(|severity| matches!(severity, Severity::Fatal | Severity::Panic))
    });
    of(class(error), fatal, stage, words(error))
}

fn of(class: Class, fatal: bool, stage: Stage, said: String) -> Trouble {
    if stage == Stage::Committing && (fatal || class == Class::Lost) {
        return Trouble::Said(Error::Unknown(said));
    }
    match class {
        Class::Again => Trouble::Again(said),
        Class::Expired => Trouble::Expired,
        Class::Lost | Class::Away => Trouble::Said(Error::Unreachable(said)),
        Class::Busy => Trouble::Said(Error::Overloaded(said)),
        Class::Full => Trouble::Said(Error::Full(said)),
        Class::Data => Trouble::Said(Error::Rejected(said)),
        Class::Broken => Trouble::Said(Error::Broken(said)),
    }
}

/// Times a transaction is tried again that lost against another one and changed nothing.
pub(crate) const TRIES_MAX: u32 = 4;

/// Runs a transaction again that lost against another one, a few times.
macro_rules! retried {
    ($work:expr) => {{
        let mut tries = 0;
        loop {
            match $work.await {
                Err($crate::error::Trouble::Again(_)) if tries < $crate::error::TRIES_MAX => tries += 1,
                other => break other,
            }
        }
    }};
}
pub(crate) use retried;

/// A value in a row that we never wrote there.
pub(crate) fn broken(what: impl std::fmt::Display) -> Trouble {
    Trouble::Said(Error::Broken(what.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_sqlstate_means_stands_in_the_table() {
        let cases = [
            ("53100", Class::Full),
            ("53300", Class::Away),
            ("53200", Class::Busy),
            ("57P01", Class::Away),
            ("57P02", Class::Away),
            ("57P03", Class::Away),
            ("57014", Class::Away),
            ("25006", Class::Away),
            ("40001", Class::Again),
            ("40P01", Class::Again),
            ("55P03", Class::Away),
            ("08006", Class::Lost),
            ("22021", Class::Data),
            ("23505", Class::Data),
            ("42P01", Class::Broken),
            ("26000", Class::Broken),
            ("XX001", Class::Broken),
            ("99999", Class::Broken),
        ];

        for (state, class) in cases {
            assert_eq!(of_state(state), class, "{state}");
        }
    }

    #[test]
    fn only_a_commit_whose_answer_is_lost_is_unknown() {
        let told = |class, fatal, stage| of(class, fatal, stage, "x".into()).told();

        assert!(matches!(told(Class::Lost, false, Stage::Committing), Error::Unknown(_)));
        assert!(matches!(told(Class::Away, true, Stage::Committing), Error::Unknown(_)), "FATAL may follow the commit");
        assert!(matches!(told(Class::Away, false, Stage::Committing), Error::Unreachable(_)));
        assert!(matches!(told(Class::Full, false, Stage::Committing), Error::Full(_)));
        assert!(matches!(told(Class::Lost, false, Stage::Harmless), Error::Unreachable(_)));
        assert!(matches!(told(Class::Away, true, Stage::Harmless), Error::Unreachable(_)));
        assert!(matches!(of(Class::Again, false, Stage::Committing, "x".into()), Trouble::Again(_)));
    }
}
